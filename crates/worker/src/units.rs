//! Sizes and durations as people write them in a file: `"512MiB"`, `"30s"`, or a plain number.

use std::time::Duration;

use ganger_types::span::read_span;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A number of bytes: a whole number with `B`, `KiB`, `MiB`, `GiB`, `kB`, `MB`, `GB`, or none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

/// A duration in the form that all of ganger reads: `500ms`, `30s`, `1h30m`, or a number of seconds.
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
        let text = text(from, "a duration such as \"30s\"")?;
        read_span(&text).map(Self).map_err(D::Error::custom)
    }
}

/// The text of a value; a number as it is written.
fn text<'de, D: Deserializer<'de>>(from: D, wanted: &str) -> Result<String, D::Error> {
    match NumberOrText::deserialize(from) {
        Ok(NumberOrText::Number(number)) => Ok(number.to_string()),
        Ok(NumberOrText::Text(text)) => Ok(text),
        Err(_) => Err(D::Error::custom(format!(
            "expected {wanted}, or a whole number"
        ))),
    }
}

fn scaled<'de, D: Deserializer<'de>>(
    from: D,
    units: &[(&str, u64)],
    wanted: &str,
) -> Result<u64, D::Error> {
    let bad = || D::Error::custom(format!("expected {wanted}, or a whole number"));
    let text = text(from, wanted)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
        toml::from_str::<std::collections::BTreeMap<String, T>>(&format!("value = {text}"))
            .map(|mut table| table.remove("value").expect("it is there"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn durations_are_read_as_everywhere() {
        for (text, seconds) in [
            ("90", 90),
            ("\"90s\"", 90),
            ("\"1h30m\"", 5_400),
            ("\"1d\"", 86_400),
        ] {
            let read: Result<Seconds, String> = read(text);
            assert_eq!(read, Ok(Seconds(Duration::from_secs(seconds))), "{text}");
        }
        for wrong in ["\"\"", "\"5 m\"", "-1", "true", "\"soon\""] {
            assert!(read::<Seconds>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(read("\"64KiB\""), Ok(Bytes(65_536)));
        assert_eq!(read("7"), Ok(Bytes(7)));
        assert!(read::<Bytes>("\"7 apples\"").is_err());
    }
}
