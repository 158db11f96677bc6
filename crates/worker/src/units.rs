//! Sizes and durations in a settings file: `"512MiB"`, `"30s"`, or a plain number.

use std::time::Duration;

use ganger_types::{size::read_size, span::read_span};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A number of bytes in the form that all of ganger reads: `512MiB`, `10MB`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

/// A duration in the form that all of ganger reads: `500ms`, `30s`, `1h30m`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seconds(pub(crate) Duration);

/// The id of a user or a group. The highest one is refused: the kernel reads it as "leave it as it is", which may be
/// root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserId(pub(crate) u32);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = text(from, "a size such as \"512MiB\"")?;
        read_size(&text).map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = text(from, "a duration such as \"30s\"")?;
        read_span(&text).map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for UserId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match u32::deserialize(from)? {
            u32::MAX => Err(D::Error::custom(format!(
                "{} is not the id of a user or group: write a number of at most {}",
                u32::MAX,
                u32::MAX - 1
            ))),
            number => Ok(Self(number)),
        }
    }
}

/// Returns the text of a value; for a number its digits.
fn text<'de, D: Deserializer<'de>>(from: D, wanted: &str) -> Result<String, D::Error> {
    match NumberOrText::deserialize(from) {
        Ok(NumberOrText::Number(number)) => Ok(number.to_string()),
        Ok(NumberOrText::Text(text)) => Ok(text),
        Err(_) => Err(D::Error::custom(format!(
            "expected {wanted}, or a whole number"
        ))),
    }
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
    fn durations_have_units() {
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
