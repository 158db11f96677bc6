//! Reads fields of a record, from bytes that may be anything.

use std::time::Duration;

use ganger_types::NameError;

use super::Record;

/// Bytes that are not the record they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {what} record {why} at byte {offset}")]
pub struct DecodeError {
    /// Name of the record that was read.
    pub what: &'static str,
    /// Description of what is wrong.
    pub why: &'static str,
    /// Offset of the fault in bytes.
    pub offset: usize,
}

/// Reads fields from the front of a buffer.
pub struct Cursor<'a> {
    rest: &'a [u8],
    whole: usize,
    what: &'static str,
    version: u8,
    origin: u64,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes`, which are said to be a `what`.
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self {
            rest: bytes,
            whole: bytes.len(),
            what,
            version: 0,
            origin: 0,
        }
    }

    /// An error at this place.
    #[cold]
    pub fn error(&self, why: &'static str) -> DecodeError {
        DecodeError {
            what: self.what,
            why,
            offset: self.whole - self.rest.len(),
        }
    }

    /// One byte.
    ///
    /// # Errors
    /// At the end.
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self
            .rest
            .split_first()
            .ok_or_else(|| self.error("ends too early"))?;
        self.rest = rest;
        Ok(*first)
    }

    /// The next byte, which stays to be read; `None` at the end.
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// A yes or no.
    ///
    /// # Errors
    /// If it is neither.
    pub fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error("has a flag that is neither set nor clear")),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// If it is cut short or larger than 64 bits.
    pub fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error("has a number beyond 64 bits"))
    }

    /// A whole number of a smaller type.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, DecodeError> {
        let value = self.number()?;
        T::try_from(value).map_err(|_| self.error("has a number that is too large"))
    }

    /// A whole number with a sign.
    ///
    /// # Errors
    /// See [`Cursor::number`].
    pub fn signed(&mut self) -> Result<i64, DecodeError> {
        let value = self.number()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// A number near which others of the record lie.
    ///
    /// # Errors
    /// See [`Cursor::number`].
    pub(super) fn origin(&mut self) -> Result<u64, DecodeError> {
        self.origin = self.number()?;
        Ok(self.origin)
    }

    /// A number near the origin.
    ///
    /// # Errors
    /// See [`Cursor::number`].
    pub(super) fn near(&mut self) -> Result<u64, DecodeError> {
        let difference = self.signed()?.cast_unsigned();
        Ok(self.origin.wrapping_add(difference))
    }

    /// Bytes of a known length.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn raw(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| self.error("ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A byte string.
    ///
    /// # Errors
    /// If it is cut short.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.small()?;
        self.raw(length)
    }

    /// A text.
    ///
    /// # Errors
    /// If it is cut short or not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.error("has a text that is not UTF-8"))
    }

    /// A name, by its constructor.
    ///
    /// # Errors
    /// If it is cut short or too long.
    pub fn name<T>(
        &mut self,
        make: impl FnOnce(&'a [u8]) -> Result<T, NameError>,
    ) -> Result<T, DecodeError> {
        let bytes = self.bytes()?;
        make(bytes).map_err(|_| self.error("has a name that is too long"))
    }

    /// A list: its count, then each. At least one byte per entry must be there.
    ///
    /// # Errors
    /// If it is cut short, or an entry is wrong.
    pub fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count: usize = self.small()?;
        if count > self.rest.len() {
            return Err(self.error("has a list longer than itself"));
        }
        // An entry in memory is larger than a byte: grow as they turn out to be there.
        let mut list = Vec::with_capacity(count.min(16));
        for _ in 0..count {
            list.push(each(self)?);
        }
        Ok(list)
    }

    /// A duration.
    ///
    /// # Errors
    /// If it is cut short or has a second's worth of nanoseconds.
    pub fn duration(&mut self) -> Result<Duration, DecodeError> {
        let seconds = self.number()?;
        let nanos: u32 = self.small()?;
        if nanos >= 1_000_000_000 {
            return Err(self.error("has a duration with too many nanoseconds"));
        }
        Ok(Duration::new(seconds, nanos))
    }

    /// A floating-point number.
    ///
    /// # Errors
    /// If it is cut short.
    pub fn float(&mut self) -> Result<f64, DecodeError> {
        let mut bits = [0; 8];
        bits.copy_from_slice(self.raw(8)?);
        Ok(f64::from_bits(u64::from_le_bytes(bits)))
    }

    /// A value that may be absent.
    ///
    /// # Errors
    /// As the value's.
    pub fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.flag()? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    /// The version of the record whose fields are being read; 0 outside of records.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Reads fields in the layout of a version that stands elsewhere, or that the caller knows.
    ///
    /// # Errors
    /// As what is read.
    pub fn in_version<T>(
        &mut self,
        version: u8,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let outer = std::mem::replace(&mut self.version, version);
        let value = read(self);
        self.version = outer;
        value
    }

    /// The version byte before a record's fields.
    ///
    /// # Errors
    /// If it is none, or one yet to come.
    pub(super) fn version_of<R: Record>(&mut self) -> Result<u8, DecodeError> {
        let version = self.byte()?;
        if version == 0 || version > R::VERSION {
            return Err(self.error("has a version that this program does not know"));
        }
        Ok(version)
    }

    /// A record within another, its version before it. Errors name the inner one, and count from the front of the
    /// outer one.
    ///
    /// # Errors
    /// If the bytes are not such a record, or one of a version yet to come.
    pub fn record<R: Record>(&mut self) -> Result<R, DecodeError> {
        let outer = std::mem::replace(&mut self.what, R::WHAT);
        let record = self
            .version_of::<R>()
            .and_then(|version| self.in_version(version, R::read));
        self.what = outer;
        record
    }

    /// All that was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Nothing may follow.
    ///
    /// # Errors
    /// If something does.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.error("has bytes after its end"))
        }
    }
}
