//! The simple parts of JSON: words, numbers, strings, and punctuation.

use super::{JsonError, Reader};
use crate::number;

impl<'a> Reader<'a> {
    /// Skips a word, which must come next.
    pub(super) fn literal(&mut self, word: &str) -> Result<(), JsonError> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.error("value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Reads a number. One that is too large becomes infinite; `NaN` and `Infinity` become these values.
    pub(super) fn number(&mut self) -> Result<f64, JsonError> {
        let begin = self.at;
        let is_negative = self.skip_byte(b'-');
        match self.peek() {
            Some(b'N') if !is_negative => {
                self.literal("NaN")?;
                return Ok(f64::NAN);
            }
            Some(b'I') => {
                self.literal("Infinity")?;
                return Ok(f64::INFINITY);
            }
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.skip_byte(b'.') {
            self.digits()?;
        }
        if self.skip_byte(b'e') || self.skip_byte(b'E') {
            if !self.skip_byte(b'+') {
                self.skip_byte(b'-');
            }
            self.digits()?;
        }
        Ok(number::parse(&self.text[begin..self.at]).unwrap_or(f64::INFINITY))
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let rest = self.rest();
        let count = rest.iter().take_while(|it| it.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.error("number"));
        }
        self.at += count;
        Ok(())
    }

    /// Skips a string, whose quote comes next.
    pub(super) fn skip_string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.escape()?;
                }
                Some(_) => self.at += 1,
                None => return Err(self.error("string end")),
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a string, and decodes its escapes to UTF-8.
    pub(super) fn string(&mut self) -> Result<Vec<u8>, JsonError> {
        let begin = self.at + 1;
        self.skip_string()?;
        let end = self.at - 1;
        let mut inside = Reader {
            text: &self.text[..end],
            at: begin,
        };
        let mut out = Vec::with_capacity(end - begin);
        while let Some(byte) = inside.peek() {
            if byte == b'\\' {
                let letter = inside.escape()?;
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                inside.at += 1;
                out.push(byte);
            }
        }
        Ok(out)
    }

    /// Reads an escape sequence: the backslash and the characters that belong to it.
    fn escape(&mut self) -> Result<char, JsonError> {
        let begin = self.at;
        self.at += 1;
        let letter = self.peek();
        self.at += 1;
        let found = match letter {
            Some(it @ (b'"' | b'\\' | b'/')) => Some(char::from(it)),
            Some(b'b') => Some('\u{8}'),
            Some(b'f') => Some('\u{c}'),
            Some(b'n') => Some('\n'),
            Some(b'r') => Some('\r'),
            Some(b't') => Some('\t'),
            Some(b'u') => self.escaped_character(),
            _ => None,
        };
        found.ok_or(JsonError {
            expected: "escape",
            at: begin,
        })
    }

    /// Reads four hexadecimal digits, or a pair of surrogates. Returns `None` for a lone surrogate, which the script
    /// refuses as well.
    fn escaped_character(&mut self) -> Option<char> {
        let first = self.four_digits()?;
        if !(0xd800..0xe000).contains(&first) {
            return char::from_u32(first);
        }
        let is_pair = self.skip_byte(b'\\') && self.skip_byte(b'u');
        let second = is_pair.then(|| self.four_digits()).flatten()?;
        let pair = (first < 0xdc00 && (0xdc00..0xe000).contains(&second))
            .then(|| 0x1_0000 + ((first & 0x3ff) << 10) + (second & 0x3ff))?;
        char::from_u32(pair)
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        let mut value = 0;
        for &digit in digits {
            value = value << 4 | char::from(digit).to_digit(16)?;
        }
        Some(value)
    }

    /// Skips spaces, and `byte` if it comes next. Returns whether it did.
    pub(super) fn skip_token(&mut self, byte: u8) -> bool {
        self.skip_spaces();
        self.skip_byte(byte)
    }

    pub(super) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), JsonError> {
        if self.skip_token(byte) {
            Ok(())
        } else {
            Err(self.error(expected))
        }
    }

    pub(super) fn skip_byte(&mut self, byte: u8) -> bool {
        let is_here = self.peek() == Some(byte);
        self.at += usize::from(is_here);
        is_here
    }

    pub(super) fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or(&[])
    }

    pub(super) fn error(&self, expected: &'static str) -> JsonError {
        JsonError {
            expected,
            at: self.at.min(self.text.len()),
        }
    }
}
