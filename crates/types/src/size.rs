//! Sizes in bytes as people write them: `65536`, `64KiB`, `8 MiB`, `10MB`.

/// Units with their sizes in bytes. They are case-sensitive, because `kb` is ambiguous.
const UNITS: [(&str, u64); 8] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// A text that is not a number of bytes, or one above `u64::MAX`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a number of bytes: write a whole number, alone or with one of B, KiB, MiB, GiB, kB, MB, GB, such as 512MiB"
)]
pub struct SizeError {
    /// The text that cannot be read as a size.
    pub text: String,
}

/// Reads a whole number of bytes, with a unit or without.
///
/// # Errors
/// If it cannot be read, or is above `u64::MAX`.
pub fn read_size(text: &str) -> Result<u64, SizeError> {
    let refused = || SizeError {
        text: text.to_owned(),
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refused())?;
    UNITS
        .iter()
        .find(|known| known.0 == unit.trim())
        .and_then(|(_, scale)| number.checked_mul(*scale))
        .ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_with_a_unit_or_without() {
        for (text, bytes) in [
            ("7", 7),
            ("0", 0),
            ("7B", 7),
            ("64KiB", 65_536),
            ("8 MiB", 8 << 20),
            ("3GiB", 3 << 30),
            ("5kB", 5_000),
            ("10MB", 10_000_000),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(read_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "x",
            "MiB",
            "64kb",
            "-1",
            "+1",
            "1.5MiB",
            "7 apples",
            "99999999999999999999",
            "18446744073709551615KiB",
        ] {
            let refused = read_size(text).expect_err(text);
            assert_eq!(refused.text, text);
        }
    }
}
