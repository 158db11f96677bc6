//! Converts `MessagePack`, in which some scripts store histories, to JSON.

use bytes::Bytes;

use super::ImportError;
use crate::json::Writer;

/// Maximum depth of nested values.
const DEPTH_MAX: usize = 100;

/// Converts one value to JSON text.
pub(super) fn to_json(bytes: &[u8]) -> Result<Bytes, ImportError> {
    let mut reader = Reader { rest: bytes };
    let mut out = Vec::new();
    reader.value(&mut out, 0)?;
    if !reader.rest.is_empty() {
        return Err("something follows the value".to_owned());
    }
    Ok(out.into())
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn value(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), ImportError> {
        if depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX}"));
        }
        let tag = self.take(1)?[0];
        match tag {
            0x00..=0x7f => number(out, f64::from(tag)),
            0x80..=0x8f => self.map(out, usize::from(tag & 0x0f), depth)?,
            0x90..=0x9f => self.array(out, usize::from(tag & 0x0f), depth)?,
            0xa0..=0xbf => self.text(out, usize::from(tag & 0x1f))?,
            0xc0 => out.extend(b"null"),
            0xc2 => out.extend(b"false"),
            0xc3 => out.extend(b"true"),
            0xc4 | 0xd9 => self.with_size(1, out, Self::text)?,
            0xc5 | 0xda => self.with_size(2, out, Self::text)?,
            0xc6 | 0xdb => self.with_size(4, out, Self::text)?,
            0xca => {
                let bytes = self.array_of::<4>()?;
                number(out, f64::from(f32::from_be_bytes(bytes)));
            }
            0xcb => number(out, f64::from_be_bytes(self.array_of()?)),
            0xcc..=0xcf => self.unsigned(out, 1 << (tag - 0xcc))?,
            0xd0..=0xd3 => self.signed(out, 1 << (tag - 0xd0))?,
            0xdc => self.with_size(2, out, |it, out, size| it.array(out, size, depth))?,
            0xdd => self.with_size(4, out, |it, out, size| it.array(out, size, depth))?,
            0xde => self.with_size(2, out, |it, out, size| it.map(out, size, depth))?,
            0xdf => self.with_size(4, out, |it, out, size| it.map(out, size, depth))?,
            0xe0..=0xff => number(out, f64::from(i16::from(tag) - 0x100)),
            other => return Err(format!("no value begins with the byte {other:#04x}")),
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], ImportError> {
        let taken = self.rest.split_at_checked(count);
        let (taken, rest) = taken.ok_or("it is cut short")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array_of<const N: usize>(&mut self) -> Result<[u8; N], ImportError> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("so many were taken"))
    }

    /// Reads an unsigned number of `bytes` bytes, the most significant first.
    fn unsigned_number(&mut self, bytes: usize) -> Result<u64, ImportError> {
        let digits = self.take(bytes)?.iter();
        Ok(digits.fold(0, |sum, digit| sum << 8 | u64::from(*digit)))
    }

    fn with_size(
        &mut self,
        bytes: usize,
        out: &mut Vec<u8>,
        read: impl FnOnce(&mut Self, &mut Vec<u8>, usize) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        let size = usize::try_from(self.unsigned_number(bytes)?).unwrap_or(usize::MAX);
        read(self, out, size)
    }

    fn unsigned(&mut self, out: &mut Vec<u8>, bytes: usize) -> Result<(), ImportError> {
        let value = self.unsigned_number(bytes)?;
        out.extend(value.to_string().bytes());
        Ok(())
    }

    fn signed(&mut self, out: &mut Vec<u8>, bytes: usize) -> Result<(), ImportError> {
        let unused = 64 - 8 * u32::try_from(bytes).expect("8 at most");
        let value = (self.unsigned_number(bytes)? << unused).cast_signed() >> unused;
        out.extend(value.to_string().bytes());
        Ok(())
    }

    fn text(&mut self, out: &mut Vec<u8>, size: usize) -> Result<(), ImportError> {
        let mut writer = Writer::with_capacity(size.min(self.rest.len()) + 2);
        writer.string(self.take(size)?);
        out.extend(writer.finish());
        Ok(())
    }

    fn array(&mut self, out: &mut Vec<u8>, size: usize, depth: usize) -> Result<(), ImportError> {
        out.push(b'[');
        for index in 0..size {
            if index > 0 {
                out.push(b',');
            }
            self.value(out, depth + 1)?;
        }
        out.push(b']');
        Ok(())
    }

    fn map(&mut self, out: &mut Vec<u8>, size: usize, depth: usize) -> Result<(), ImportError> {
        out.push(b'{');
        for index in 0..size {
            if index > 0 {
                out.push(b',');
            }
            let from = out.len();
            self.value(out, depth + 1)?;
            if out[from] != b'"' {
                // Keys in JSON are texts only.
                let key = out.split_off(from);
                let mut writer = Writer::default();
                writer.string(key);
                out.extend(writer.finish());
            }
            out.push(b':');
            self.value(out, depth + 1)?;
        }
        out.push(b'}');
        Ok(())
    }
}

fn number(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        let mut writer = Writer::default();
        writer.number(value);
        out.extend(writer.finish());
    } else {
        out.extend(b"null");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::to_json;

    fn shown(bytes: &[u8]) -> Result<String, String> {
        to_json(bytes).map(|json| String::from_utf8_lossy(&json).into_owned())
    }

    #[test]
    fn values_of_every_kind_are_read() {
        let values: [(&[u8], &str); 14] = [
            (b"\x07", "7"),
            (b"\xff", "-1"),
            (b"\xcd\x01\x00", "256"),
            (b"\xce\x65\x00\x00\x00", "1694498816"),
            (b"\xd0\x80", "-128"),
            (b"\xd3\xff\xff\xff\xff\xff\xff\xff\xfe", "-2"),
            (b"\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00", "1.5"),
            (b"\xa2a\"", "\"a\\\"\""),
            (b"\xd9\x01x", "\"x\""),
            (b"\xda\x00\x01x", "\"x\""),
            (b"\xc0", "null"),
            (b"\x92\xc2\xc3", "[false,true]"),
            (b"\x81\xa1a\x90", "{\"a\":[]}"),
            (b"\x81\x01\x02", "{\"1\":2}"),
        ];
        for (bytes, json) in values {
            assert_eq!(
                shown(bytes).as_deref(),
                Ok(json),
                "{}",
                bytes.escape_ascii()
            );
        }
    }

    #[test]
    fn what_is_cut_short_or_too_deep_is_refused() {
        let wrong: [&[u8]; 6] = [
            b"",
            b"\x92\x01",
            b"\xdd\xff\xff\xff\xff",
            b"\xdb\xff\xff\xff\xffx",
            b"\x01\x01",
            &[0x91; 200],
        ];
        for bytes in wrong {
            assert!(shown(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(to_json(&bytes));
        }
    }
}
