//! Sizes and durations as people write them in a file: `"512MiB"`, `"30s"`, or a plain number.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A number of bytes: a whole number with `B`, `KiB`, `MiB`, `GiB`, `kB`, `MB`, `GB`, or none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

/// A duration: a whole number with `ms`, `s`, `m`, `h`, or none of them, which means seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seconds(pub(crate) Duration);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
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
        scaled(from, &UNITS, "a size such as \"512MiB\"").map(Self)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const UNITS: [(&str, u64); 5] = [
            ("", 1_000),
            ("ms", 1),
            ("s", 1_000),
            ("m", 60_000),
            ("h", 3_600_000),
        ];
        scaled(from, &UNITS, "a duration such as \"30s\"").map(|ms| Self(Duration::from_millis(ms)))
    }
}

fn scaled<'de, D: Deserializer<'de>>(
    from: D,
    units: &[(&str, u64)],
    wanted: &str,
) -> Result<u64, D::Error> {
    let bad = || D::Error::custom(format!("expected {wanted}, or a whole number"));
    let text = match NumberOrText::deserialize(from).map_err(|_| bad())? {
        NumberOrText::Number(number) => number.to_string(),
        NumberOrText::Text(text) => text,
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let scale = units
        .iter()
        .find(|(name, _)| *name == unit.trim())
        .map(|(_, scale)| *scale);
    scale
        .and_then(|scale| number.checked_mul(scale))
        .ok_or_else(bad)
}
