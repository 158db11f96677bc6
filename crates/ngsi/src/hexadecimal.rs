//! Hexadecimal encoding.

use std::fmt::Write as _;

/// Encodes each byte as two lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a string takes what is written to it");
        out
    })
}
