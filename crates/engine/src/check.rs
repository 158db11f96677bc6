//! Checks that several commands share.

use ganger_types::{Bytes, Rejection};

/// Refuses `actual` beyond `limit`.
pub(crate) fn at_most(what: &'static str, actual: u64, limit: u64) -> Result<(), Rejection> {
    if actual > limit {
        return Err(Rejection::TooLarge {
            what,
            actual,
            limit,
        });
    }
    Ok(())
}

/// Refuses an empty name, which could not be written in a path or on a command line.
pub(crate) fn check_named(what: &'static str, name: &[u8]) -> Result<(), Rejection> {
    if name.is_empty() {
        let expected = "1 to 255 bytes long";
        return Err(Rejection::OutOfRange { what, expected });
    }
    Ok(())
}

pub(crate) fn check_size(
    what: &'static str,
    bytes: Option<&Bytes>,
    limit: u64,
) -> Result<(), Rejection> {
    let size = bytes.map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    at_most(what, size, limit)
}

/// Cuts a text to a number of bytes, at a character boundary.
pub(crate) fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
    }
}
