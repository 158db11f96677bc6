//! Parses sizes with units, such as `10 B`, `1.2 KiB` or `0.9 GiB`.

/// First letters of the units. The n-th, from 1, means 1000^n bytes, or 1024^n if followed by an `i`.
const LETTERS: &str = "kmgtpe";

/// Parses a size into whole bytes. `None` for negative numbers, numbers without a unit, and sizes from 2^63 bytes on.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|it: char| !matches!(it, '0'..='9' | '.'))?;
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let bytes = number * factor(unit.trim())?;
    if bytes >= EXACT_MAX {
        return None;
    }
    #[expect(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative and has been compared with the maximum; fractions of bytes are dropped"
    )]
    Some(bytes as u64)
}

/// 2^63, the first size that is not accepted.
const EXACT_MAX: f64 = 9_223_372_036_854_775_808.0;

/// Returns the number of bytes of a unit: `B`, `kB`, `KiB` and so on, in any case; `byte` and `bytes` mean `B`.
fn factor(unit: &str) -> Option<f64> {
    let unit = unit.to_ascii_lowercase();
    let prefix = unit
        .strip_suffix("bytes")
        .or_else(|| unit.strip_suffix("byte"))
        .or_else(|| unit.strip_suffix('b'))?;
    let mut letters = prefix.chars();
    let Some(letter) = letters.next() else {
        return Some(1.0);
    };
    let power = i32::try_from(LETTERS.find(letter)?).ok()? + 1;
    match letters.as_str() {
        "" => Some(1_000_f64.powi(power)),
        "i" => Some(1_024_f64.powi(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn sizes_have_units() {
        for (text, size) in [
            ("10 B", 10),
            ("10B", 10),
            (" 0 B ", 0),
            ("1.2 KiB", 1_228),
            ("1.5 kB", 1_500),
            ("2 MiB", 2 << 20),
            ("0.9 GiB", 966_367_641),
            ("1 TB", 1_000_000_000_000),
            ("3 Byte", 3),
            ("1 eib", 1 << 60),
        ] {
            assert_eq!(parse_bytes(text), Some(size), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_sizes() {
        for text in [
            "", "10", "B", "ten B", "-1 B", "1.2.3 B", ". B", "1 XB", "1 KiBit", "1 iB", "1 Kib/s",
            "100 EiB", "1e3 B", "NaN B", "\u{e9}B", "1 \u{e9}",
        ] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }
}
