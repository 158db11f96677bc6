//! The encoder of fields.

use std::time::Duration;

use super::Record;

/// Appends fields to a buffer.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    origin: u64,
}

impl<'a> Writer<'a> {
    /// Returns a writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, origin: 0 }
    }

    /// Writes one byte as it is.
    pub fn byte(&mut self, value: u8) {
        self.out.push(value);
    }

    /// Writes a boolean as one byte, 0 or 1.
    pub fn flag(&mut self, value: bool) {
        self.out.push(u8::from(value));
    }

    /// Writes a whole number as a varint: seven bits per byte, the lowest first.
    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.out.push(value.to_le_bytes()[0]);
    }

    /// Writes a signed whole number in zigzag form: small absolute values are short.
    pub fn signed(&mut self, value: i64) {
        self.number(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    /// Writes the number that is the origin of others in the record.
    pub(super) fn origin(&mut self, value: u64) {
        self.origin = value;
        self.number(value);
    }

    /// Writes a number as its difference from the origin.
    pub(super) fn near(&mut self, value: u64) {
        self.signed(value.wrapping_sub(self.origin).cast_signed());
    }

    /// Writes a byte string with its length.
    pub fn bytes(&mut self, value: &[u8]) {
        self.length(value.len());
        self.out.extend_from_slice(value);
    }

    /// Writes bytes whose length the decoder knows.
    pub fn raw(&mut self, value: &[u8]) {
        self.out.extend_from_slice(value);
    }

    /// Writes a length or a count.
    pub fn length(&mut self, value: usize) {
        // A `usize` has at most 64 bits.
        self.number(u64::try_from(value).unwrap_or(u64::MAX));
    }

    /// Writes a duration without rounding.
    pub fn duration(&mut self, value: Duration) {
        self.number(value.as_secs());
        self.number(u64::from(value.subsec_nanos()));
    }

    /// Writes a floating-point number, bit by bit.
    pub fn float(&mut self, value: f64) {
        self.out.extend_from_slice(&value.to_bits().to_le_bytes());
    }

    /// Writes a record: its version, then its fields.
    pub fn record<R: Record>(&mut self, record: &R) {
        self.byte(R::VERSION);
        record.write(self);
    }

    /// Writes an optional value: a flag, then the value if there is one.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}
