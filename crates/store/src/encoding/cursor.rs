//! The decoder of fields, for arbitrary bytes.

use std::time::Duration;

use ganger_types::NameError;

use super::Record;

/// The error for bytes that are not the expected record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {what} record {why} at byte {offset}")]
pub struct DecodeError {
    /// Name of the expected record.
    pub what: &'static str,
    /// Description of what is wrong.
    pub why: &'static str,
    /// Offset of the error in bytes.
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
    /// A cursor over `bytes`, which should be a `what`.
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self {
            rest: bytes,
            whole: bytes.len(),
            what,
            version: 0,
            origin: 0,
        }
    }

    /// An error at the current offset.
    #[cold]
    pub fn error(&self, why: &'static str) -> DecodeError {
        DecodeError {
            what: self.what,
            why,
            offset: self.whole - self.rest.len(),
        }
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// If there are no more bytes.
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self
            .rest
            .split_first()
            .ok_or_else(|| self.error("ends too early"))?;
        self.rest = rest;
        Ok(*first)
    }

    /// The next byte, without reading it; `None` at the end.
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// If the byte is neither 0 nor 1.
    pub fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error("has a flag that is neither set nor clear")),
        }
    }

    /// Reads a whole number.
    ///
    /// # Errors
    /// If the number is truncated or larger than 64 bits.
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

    /// Reads a whole number of a smaller type.
    ///
    /// # Errors
    /// If the number does not fit.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, DecodeError> {
        let value = self.number()?;
        T::try_from(value).map_err(|_| self.error("has a number that is too large"))
    }

    /// Reads a signed whole number.
    ///
    /// # Errors
    /// See [`Cursor::number`].
    pub fn signed(&mut self) -> Result<i64, DecodeError> {
        let value = self.number()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// Reads the number that is the origin of others in the record.
    ///
    /// # Errors
    /// See [`Cursor::number`].
    pub(super) fn origin(&mut self) -> Result<u64, DecodeError> {
        self.origin = self.number()?;
        Ok(self.origin)
    }

    /// Reads a number stored as its difference from the origin.
    ///
    /// # Errors
    /// See [`Cursor::number`].
    pub(super) fn near(&mut self) -> Result<u64, DecodeError> {
        let difference = self.signed()?.cast_unsigned();
        Ok(self.origin.wrapping_add(difference))
    }

    /// Reads bytes of a known length.
    ///
    /// # Errors
    /// If there are fewer bytes.
    pub fn raw(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| self.error("ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads a byte string.
    ///
    /// # Errors
    /// If the bytes are truncated.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.small()?;
        self.raw(length)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// If the text is truncated or not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.error("has a text that is not UTF-8"))
    }

    /// Reads a name with its constructor.
    ///
    /// # Errors
    /// If the name is truncated or too long.
    pub fn name<T>(
        &mut self,
        make: impl FnOnce(&'a [u8]) -> Result<T, NameError>,
    ) -> Result<T, DecodeError> {
        let bytes = self.bytes()?;
        make(bytes).map_err(|_| self.error("has a name that is too long"))
    }

    /// Reads a list: the count, then the entries, of at least one byte each.
    ///
    /// # Errors
    /// If the list is truncated, or an entry is invalid.
    pub fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count: usize = self.small()?;
        if count > self.rest.len() {
            return Err(self.error("has a list longer than itself"));
        }
        // An entry in memory is larger than a byte, so let the list grow instead of trusting the count.
        let mut list = Vec::with_capacity(count.min(16));
        for _ in 0..count {
            list.push(each(self)?);
        }
        Ok(list)
    }

    /// Reads a duration.
    ///
    /// # Errors
    /// If the duration is truncated, or has a whole second of nanoseconds.
    pub fn duration(&mut self) -> Result<Duration, DecodeError> {
        let seconds = self.number()?;
        let nanos: u32 = self.small()?;
        if nanos >= 1_000_000_000 {
            return Err(self.error("has a duration with too many nanoseconds"));
        }
        Ok(Duration::new(seconds, nanos))
    }

    /// Reads a floating-point number.
    ///
    /// # Errors
    /// If the bytes are truncated.
    pub fn float(&mut self) -> Result<f64, DecodeError> {
        let mut bits = [0; 8];
        bits.copy_from_slice(self.raw(8)?);
        Ok(f64::from_bits(u64::from_le_bytes(bits)))
    }

    /// Reads an optional value.
    ///
    /// # Errors
    /// If the flag or the value is invalid.
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

    /// The version of the record that is being read; 0 outside of records.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Reads fields in the layout of a version that the caller knows.
    ///
    /// # Errors
    /// Those of `read`.
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

    /// Reads the version byte of a record.
    ///
    /// # Errors
    /// If there is none, or it is a newer version.
    pub(super) fn version_of<R: Record>(&mut self) -> Result<u8, DecodeError> {
        let version = self.byte()?;
        if version == 0 || version > R::VERSION {
            return Err(self.error("has a version that this program does not know"));
        }
        Ok(version)
    }

    /// Reads a record within another, with its version before it. Errors name the inner record, with an offset in the
    /// outer one.
    ///
    /// # Errors
    /// If the bytes are not such a record, or have a newer version.
    pub fn record<R: Record>(&mut self) -> Result<R, DecodeError> {
        let outer = std::mem::replace(&mut self.what, R::WHAT);
        let record = self
            .version_of::<R>()
            .and_then(|version| self.in_version(version, R::read));
        self.what = outer;
        record
    }

    /// The bytes that were not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// If there are more bytes.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.error("has bytes after its end"))
        }
    }
}
