//! Collects gRPC messages until they are complete.
//!
//! The decoder reserves the announced length as soon as it sees the first five bytes. So it gets them together with
//! the last byte: an announced message that is never sent costs nothing.

use axum::body::Bytes;

/// Bytes of a message's header: compression flag and length.
const HEADER_BYTES: usize = 5;

/// The message being collected.
#[derive(Debug)]
pub(super) struct Framing {
    /// Maximum bytes of a message. Longer ones are passed on as they arrive: the decoder refuses them by their
    /// header.
    message_bytes_max: usize,
    collected: Vec<u8>,
    is_passing: bool,
}

impl Framing {
    pub(super) fn new(message_bytes_max: usize) -> Self {
        Self {
            message_bytes_max,
            collected: Vec::new(),
            is_passing: false,
        }
    }

    /// Adds a chunk; returns the bytes that can be passed on, perhaps none.
    pub(super) fn add(&mut self, piece: Bytes) -> Bytes {
        if self.is_passing {
            return piece;
        }
        if self.collected.is_empty() {
            let whole = self.whole_bytes(&piece);
            if whole == piece.len() {
                return piece;
            }
            self.collected.extend_from_slice(&piece[whole..]);
            return piece.slice(..whole);
        }
        self.collected.extend_from_slice(&piece);
        let whole = self.whole_bytes_collected();
        if whole == 0 {
            return Bytes::new();
        }
        let rest = self.collected.split_off(whole);
        Bytes::from(std::mem::replace(&mut self.collected, rest))
    }

    /// Returns the remaining bytes at the end of the body: an incomplete message, which the decoder refuses.
    pub(super) fn end(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.collected))
    }

    /// Whether a message is incomplete.
    pub(super) fn is_within(&self) -> bool {
        !self.collected.is_empty()
    }

    /// Number of bytes that the incomplete message will have, as it announces them; 0 if none is incomplete.
    pub(super) fn announced_bytes(&self) -> usize {
        let announced = length(&self.collected).map_or(0, |length| HEADER_BYTES + length);
        announced.max(self.collected.len())
    }

    fn whole_bytes_collected(&mut self) -> usize {
        let collected = std::mem::take(&mut self.collected);
        let whole = self.whole_bytes(&collected);
        self.collected = collected;
        whole
    }

    /// Returns the length of the complete messages at the start of `bytes`; of all bytes once a message is too long.
    fn whole_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(length) = length(&bytes[at..]) {
            if length > self.message_bytes_max {
                self.is_passing = true;
                return bytes.len();
            }
            let end = at + HEADER_BYTES + length;
            if end > bytes.len() {
                break;
            }
            at = end;
        }
        at
    }
}

/// Returns the length that the header at the start of `bytes` announces; `None` if the header is incomplete.
fn length(bytes: &[u8]) -> Option<usize> {
    let header = bytes.get(..HEADER_BYTES)?;
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
    Some(usize::try_from(length).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).expect("short").to_be_bytes();
        [&[0], &length[..], body].concat()
    }

    #[test]
    fn messages_are_passed_on_whole_however_their_bytes_arrive() {
        let sent = [message(b"one"), message(b""), message(&[7; 300])].concat();
        let ends = [8, 13, sent.len()];
        for size in 1..=sent.len() {
            let mut framing = Framing::new(1_000);
            let mut out = Vec::new();
            for piece in sent.chunks(size) {
                out.extend_from_slice(&framing.add(Bytes::copy_from_slice(piece)));
                assert!(
                    out.is_empty() || ends.contains(&out.len()),
                    "pieces of {size}"
                );
            }
            assert_eq!(out, sent, "pieces of {size}");
            assert!(!framing.is_within());
        }
    }

    #[test]
    fn an_incomplete_message_reserves_nothing_and_one_beyond_the_limit_is_passed_on() {
        let mut framing = Framing::new(4 << 20);
        let begun = Bytes::from_static(&[0, 0, 0x3f, 0xff, 0xc0, 0x78]);
        assert!(framing.add(begun.clone()).is_empty());
        assert!(framing.collected.capacity() < 64);
        assert_eq!(framing.announced_bytes(), 0x003f_ffc0 + HEADER_BYTES);
        let mut framing = Framing::new(1 << 10);
        assert_eq!(framing.add(begun.clone()), begun);
    }
}
