//! The decoder of requests: arrays of bulk strings, or lines of words.
//!
//! Errors are those of Redis 7 and end the connection, as there. A request that is legal in Redis but too large for
//! ganger is skipped, so that the connection stays usable.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::limits::{
    ARGUMENT_BYTES, ARGUMENTS_MAX, ARGUMENTS_UNKNOWN_MAX, BULK_BYTES_MAX, BULK_BYTES_PASSED_MAX,
    BULK_BYTES_UNKNOWN_MAX, FRAME_BYTES_MAX, LINE_BYTES_MAX,
};
use crate::number::integer;
use crate::words::split;

/// Length from which an argument is moved out of the input buffer as it arrives.
const LONG_BYTES: usize = 32 << 10;

/// A request that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A command: its name and its arguments. Never empty.
    Command(Vec<Bytes>),
    /// A request that was too large and was skipped, with the error for the client.
    TooLarge(String),
}

/// Bytes that are not a request. The rest of the input cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError(String);

impl ProtocolError {
    /// The text of the error reply.
    pub fn text(&self) -> String {
        format!("ERR Protocol error: {}", self.0)
    }
}

fn wrong<T>(what: impl Into<String>) -> Result<T, ProtocolError> {
    Err(ProtocolError(what.into()))
}

/// Decodes requests, and holds the received part of an incomplete one.
#[derive(Debug, Default)]
pub struct Decoder {
    arguments: Vec<Bytes>,
    /// Number of arguments still to come; 0 between requests.
    left: usize,
    /// Length of the argument that is being read.
    bulk: Option<usize>,
    /// Bytes that are still to be skipped.
    passing: usize,
    /// Size of all arguments, with the overhead of each.
    bytes: usize,
    /// Received part of a long argument.
    part: Vec<u8>,
    /// Why the request is skipped; `None` if it is not.
    too_large: Option<String>,
}

impl Decoder {
    /// The next complete request; `None` if more bytes are needed. An authenticated client (`is_known`) may send
    /// larger ones.
    ///
    /// # Errors
    /// If the bytes are not a request.
    pub fn next(
        &mut self,
        input: &mut BytesMut,
        is_known: bool,
    ) -> Result<Option<Request>, ProtocolError> {
        loop {
            if self.left == 0 {
                match input.first().copied() {
                    Some(b'*') if self.begin(input, is_known)? => continue,
                    None | Some(b'*') => return Ok(None),
                    Some(_) => match line_of_words(input)? {
                        None => return Ok(None),
                        Some(words) if words.is_empty() => continue,
                        Some(words) => return Ok(Some(Request::Command(words))),
                    },
                }
            }
            if !self.argument(input, is_known)? {
                return Ok(None);
            }
            if self.left == 0 {
                self.bytes = 0;
                let arguments = std::mem::take(&mut self.arguments);
                return Ok(Some(match self.too_large.take() {
                    Some(reason) => Request::TooLarge(reason),
                    None => Request::Command(arguments),
                }));
            }
        }
    }

    /// Size of the received part of a request in memory, in bytes.
    pub fn held(&self) -> usize {
        let announced = self.bulk.unwrap_or(0) + ARGUMENT_BYTES;
        let whole = if self.bulk.is_some() {
            self.bytes.saturating_sub(announced)
        } else {
            self.bytes
        };
        if self.too_large.is_some() || self.left == 0 {
            return 0;
        }
        whole + self.part.len()
    }

    /// Skips the incomplete request and refuses it with this text. Returns false if there is none.
    pub fn refuse(&mut self, refusal: String) -> bool {
        if self.left == 0 {
            return false;
        }
        if let Some(length) = self.bulk.filter(|_| self.too_large.is_none()) {
            self.passing = length + 2 - self.part.len();
        }
        self.give_up(refusal);
        true
    }

    /// Reads the number of arguments. Returns false if the line is incomplete.
    fn begin(&mut self, input: &mut BytesMut, is_known: bool) -> Result<bool, ProtocolError> {
        let Some(line) = line(input, "too big mbulk count string")? else {
            return Ok(false);
        };
        let count = integer(&line[1..]);
        let count =
            count.filter(|count| *count <= i64::try_from(ARGUMENTS_MAX).unwrap_or(i64::MAX));
        let Some(count) = count else {
            return wrong("invalid multibulk length");
        };
        self.left = usize::try_from(count).unwrap_or(0);
        if !is_known && self.left > ARGUMENTS_UNKNOWN_MAX {
            return wrong("unauthenticated multibulk length");
        }
        Ok(true)
    }

    /// Reads an argument. Returns false if it is incomplete.
    fn argument(&mut self, input: &mut BytesMut, is_known: bool) -> Result<bool, ProtocolError> {
        let length = match self.bulk {
            Some(length) => length,
            None => match self.length(input, is_known)? {
                Some(length) => length,
                None => return Ok(false),
            },
        };
        if self.too_large.is_some() {
            let passed = self.passing.min(input.len());
            input.advance(passed);
            self.passing -= passed;
            if self.passing > 0 {
                return Ok(false);
            }
        } else if length > LONG_BYTES {
            if !self.long_argument(length, input) {
                return Ok(false);
            }
        } else {
            if input.len() < length + 2 {
                return Ok(false);
            }
            // Copy the argument, because a slice would keep the whole buffer in memory while the store holds the
            // slice.
            self.arguments
                .push(Bytes::copy_from_slice(&input[..length]));
            // Redis does not check these two bytes either.
            input.advance(length + 2);
        }
        self.bulk = None;
        self.left -= 1;
        Ok(true)
    }

    /// Moves the received part of a long argument out of the buffer. Returns false if it is incomplete. The memory is
    /// at most twice that of the received bytes, and never depends on the announced length alone.
    fn long_argument(&mut self, length: usize, input: &mut BytesMut) -> bool {
        let missing = length - self.part.len();
        let here = missing.min(input.len());
        if self.part.capacity() - self.part.len() < here {
            let room = here.max(self.part.len()).min(missing);
            self.part.reserve_exact(room);
        }
        self.part.extend_from_slice(&input[..here]);
        input.advance(here);
        if here < missing || input.len() < 2 {
            return false;
        }
        input.advance(2);
        self.arguments
            .push(Bytes::from(std::mem::take(&mut self.part)));
        true
    }

    /// Reads the length of an argument; `None` if the line is incomplete.
    fn length(
        &mut self,
        input: &mut BytesMut,
        is_known: bool,
    ) -> Result<Option<usize>, ProtocolError> {
        let Some(line) = line(input, "too big bulk count string")? else {
            return Ok(None);
        };
        if line[0] != b'$' {
            return wrong(format!("expected '$', got '{}'", char::from(line[0])));
        }
        let length = integer(&line[1..]).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length <= BULK_BYTES_PASSED_MAX) else {
            return wrong("invalid bulk length");
        };
        if !is_known && length > BULK_BYTES_UNKNOWN_MAX {
            return wrong("unauthenticated bulk length");
        }
        let bytes = length.saturating_add(ARGUMENT_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        if length > BULK_BYTES_MAX {
            self.give_up(format!(
                "ERR an argument of {length} bytes exceeds the largest length of {BULK_BYTES_MAX} bytes"
            ));
        } else if self.bytes > FRAME_BYTES_MAX {
            self.give_up(format!(
                "ERR a command exceeds the largest length of {FRAME_BYTES_MAX} bytes, {ARGUMENT_BYTES} for each argument among them"
            ));
        }
        self.bulk = Some(length);
        self.passing = if self.too_large.is_some() {
            length + 2
        } else {
            0
        };
        Ok(Some(length))
    }

    fn give_up(&mut self, reason: String) {
        self.too_large.get_or_insert(reason);
        self.arguments = Vec::new();
        self.part = Vec::new();
    }
}

/// Reads a line and removes its CR LF; `None` if it is incomplete. Never empty.
fn line(input: &mut BytesMut, too_long: &str) -> Result<Option<BytesMut>, ProtocolError> {
    let looked_at = input.len().min(LINE_BYTES_MAX + 1);
    let Some(end) = input[..looked_at].iter().position(|byte| *byte == b'\r') else {
        return if input.len() > LINE_BYTES_MAX {
            wrong(too_long)
        } else {
            Ok(None)
        };
    };
    if input.len() < end + 2 {
        return Ok(None);
    }
    if end == 0 {
        // An empty line instead of a length.
        return wrong("expected '$', got '\r'");
    }
    let line = input.split_to(end);
    input.advance(2);
    Ok(Some(line))
}

/// Reads a command written as words; `None` if the line is incomplete.
fn line_of_words(input: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
    let looked_at = input.len().min(LINE_BYTES_MAX + 1);
    let Some(end) = input[..looked_at].iter().position(|byte| *byte == b'\n') else {
        return if input.len() > LINE_BYTES_MAX {
            wrong("too big inline request")
        } else {
            Ok(None)
        };
    };
    let line = input.split_to(end);
    input.advance(1);
    let line = line.strip_suffix(b"\r").unwrap_or(&line);
    match split(line) {
        Some(words) => Ok(Some(words)),
        None => wrong("unbalanced quotes in request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Request>, ProtocolError> {
        let mut input = BytesMut::from(bytes);
        let mut decoder = Decoder::default();
        let mut requests = Vec::new();
        while let Some(request) = decoder.next(&mut input, true)? {
            requests.push(request);
        }
        Ok(requests)
    }

    fn words(words: &[&'static str]) -> Request {
        Request::Command(
            words
                .iter()
                .map(|word| Bytes::from_static(word.as_bytes()))
                .collect(),
        )
    }

    #[test]
    fn arrays_and_lines_may_follow_each_other() {
        let requests = all(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n\r\nset \"a b\" 'c'\r\n*0\r\n*-1\r\nPING\n*1\r\n$4\r\nQUIT\r\n");
        let expected = vec![
            words(&["GET", "a"]),
            words(&["set", "a b", "c"]),
            words(&["PING"]),
            words(&["QUIT"]),
        ];
        assert_eq!(requests, Ok(expected));
    }

    #[test]
    fn errors_are_those_of_redis() {
        let cases: [(&[u8], &str); 7] = [
            (b"*x\r\n", "invalid multibulk length"),
            (b"*1048577\r\n", "invalid multibulk length"),
            (b"*1\r\n:1\r\n", "expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$536870913\r\n", "invalid bulk length"),
            (b"*1\r\n$01\r\n", "invalid bulk length"),
            (b"a 'b\r\n", "unbalanced quotes in request"),
        ];
        for (bytes, error) in cases {
            let text = all(bytes).expect_err("no request").text();
            assert_eq!(text, format!("ERR Protocol error: {error}"));
        }
        let long = vec![b'1'; LINE_BYTES_MAX + 1];
        assert!(all(&[b"*", &long[..]].concat()).is_err());
        assert!(all(&long).is_err());
    }

    #[test]
    fn unauthenticated_clients_may_send_little() {
        let next = |bytes: &[u8]| Decoder::default().next(&mut BytesMut::from(bytes), false);
        assert!(next(b"*11\r\n").is_err());
        assert!(next(b"*2\r\n$16385\r\n").is_err());
        assert_eq!(next(b"*2\r\n$16384\r\n"), Ok(None));
    }

    #[test]
    fn a_command_that_is_too_large_is_skipped_and_the_next_one_is_run() {
        let length = BULK_BYTES_MAX + 1;
        let mut decoder = Decoder::default();
        let mut input =
            BytesMut::from(format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${length}\r\n").as_bytes());
        let piece = vec![0; 1 << 20];
        for _ in 0..length >> 20 {
            input.extend_from_slice(&piece);
            assert_eq!(decoder.next(&mut input, true), Ok(None));
            assert!(input.is_empty(), "nothing of it is kept");
        }
        input.extend_from_slice(b"x\r\n*1\r\n$4\r\nPING\r\n");
        let refused = decoder.next(&mut input, true);
        assert!(
            matches!(&refused, Ok(Some(Request::TooLarge(why))) if why.contains("exceeds")),
            "{refused:?}"
        );
        assert_eq!(decoder.next(&mut input, true), Ok(Some(words(&["PING"]))));
    }
}
