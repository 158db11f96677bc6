//! Splits a stream of bytes into lines of limited length.

use bytes::{Buf, Bytes, BytesMut};

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Bytes of the line.
    Text(Bytes),
    /// The line was longer than the limit and was dropped.
    TooLong,
}

/// Splits bytes into lines. It holds at most one line and one piece of the stream.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: BytesMut,
    /// Number of bytes at the front without a line end.
    searched: usize,
    limit: usize,
    /// Whether the rest of a line that is too long is being skipped.
    is_skipping: bool,
}

impl Lines {
    /// Creates a splitter for lines of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            limit,
            is_skipping: false,
        }
    }

    /// Appends bytes to the buffer.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Number of bytes in the buffer.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// The next complete line; `None` if there is none yet.
    pub(crate) fn next(&mut self) -> Option<Line> {
        let found = self.buffer[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        let Some(at) = found.map(|at| at + self.searched) else {
            self.searched = self.buffer.len();
            if self.searched > self.limit {
                self.is_skipping = true;
            }
            if self.is_skipping {
                self.buffer.clear();
                self.searched = 0;
            }
            return None;
        };
        let line = self.buffer.split_to(at);
        self.buffer.advance(1);
        self.searched = 0;
        let was_skipping = std::mem::replace(&mut self.is_skipping, false);
        if was_skipping || line.len() > self.limit {
            return Some(Line::TooLong);
        }
        Some(Line::Text(line.freeze()))
    }

    /// The last line, if it has no line end.
    pub(crate) fn end(&mut self) -> Option<Line> {
        if self.is_skipping {
            self.is_skipping = false;
            return Some(Line::TooLong);
        }
        let rest = std::mem::take(&mut self.buffer);
        self.searched = 0;
        (!rest.is_empty()).then(|| Line::Text(rest.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &'static str) -> Line {
        Line::Text(Bytes::from_static(line.as_bytes()))
    }

    #[test]
    fn lines_come_out_however_the_bytes_come_in() {
        let whole = b"one\n\ntwo\nthree";
        for size in 1..=whole.len() {
            let mut lines = Lines::new(5);
            let mut out = Vec::new();
            for piece in whole.chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.next() {
                    out.push(line);
                }
            }
            out.extend(lines.end());
            let wanted: Vec<Line> = ["one", "", "two", "three"].map(text).into();
            assert_eq!(out, wanted, "pieces of {size}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_dropped_and_the_next_one_is_read() {
        let mut lines = Lines::new(4);
        for _ in 0..1_000 {
            lines.push(b"xxxxxxxx");
            assert_eq!(lines.next(), None);
            assert!(lines.buffer.len() <= 8);
        }
        lines.push(b"\nok\n");
        assert_eq!(lines.next(), Some(Line::TooLong));
        assert_eq!(lines.next(), Some(text("ok")));
        lines.push(b"toolong");
        assert_eq!(lines.next(), None);
        assert_eq!(lines.end(), Some(Line::TooLong));
    }
}
