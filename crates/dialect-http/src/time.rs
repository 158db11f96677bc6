//! Times and durations in JSON.
//!
//! Durations are strings such as `30s`, `1h30m`, `500ms`, or numbers of seconds. Calendar times are
//! RFC 3339 with an offset, such as `2030-01-31T09:30:00Z`.

use std::borrow::Cow;
use std::time::Duration;

use ganger_types::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{RefOr, schema::KnownFormat};
use utoipa::{PartialSchema, ToSchema};

/// Longest duration taken: a hundred years. Longer ones are a slip of the unit.
const SPAN_SECONDS_MAX: f64 = 3_155_760_000.0;

const UNITS: [(&str, f64); 6] = [
    ("d", 86_400.0),
    ("h", 3_600.0),
    ("m", 60.0),
    ("s", 1.0),
    ("ms", 1e-3),
    ("us", 1e-6),
];

/// A duration on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// A calendar time on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) Timestamp);

/// Reads `1h30m`, `500ms`, or a bare number of seconds.
pub(crate) fn read_span(text: &str) -> Result<Duration, String> {
    let wanted = || {
        format!(
            "{text:?} is not a duration: write one such as \"30s\", \"1h30m\", \"500ms\", or a number of seconds"
        )
    };
    let seconds = match text.parse::<f64>() {
        Ok(seconds) if text.starts_with(|c: char| c.is_ascii_digit() || c == '.') => seconds,
        _ => read_units(text).ok_or_else(wanted)?,
    };
    if !(0.0..=SPAN_SECONDS_MAX).contains(&seconds) {
        return Err(format!(
            "{text:?} is out of range: a duration is at most 100 years"
        ));
    }
    // Rounded to the engine's unit, so that 0.1 s is 100 000 us and not one less.
    Ok(Duration::from_micros(rounded_micros(seconds)))
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the caller has checked the range, and no other conversion from floats exists"
)]
fn rounded_micros(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

fn read_units(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut seconds = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let scale = UNITS.iter().find(|known| known.0 == unit)?.1;
        seconds += number.parse::<f64>().ok()? * scale;
        rest = tail;
    }
    Some(seconds)
}

/// Writes what [`read_span`] reads, in whole units.
pub(crate) fn show_span(span: Duration) -> String {
    let mut rest = ganger_types::time::micros(span);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    let units = [
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("m", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1_000),
        ("us", 1),
    ];
    for (unit, scale) in units {
        if rest >= scale {
            out.push_str(&(rest / scale).to_string());
            out.push_str(unit);
            rest %= scale;
        }
    }
    out
}

/// Reads RFC 3339.
pub(crate) fn read_moment(text: &str) -> Result<Timestamp, String> {
    let wanted = "a time is RFC 3339 with an offset, such as 2030-01-31T09:30:00Z";
    let time: jiff::Timestamp = text
        .parse()
        .map_err(|_| format!("{text:?} is not a time: {wanted}"))?;
    u64::try_from(time.as_microsecond())
        .map(Timestamp)
        .map_err(|_| format!("{text:?} is before 1970: {wanted}"))
}

/// Writes RFC 3339; a time beyond the calendar's end is written as the end.
pub(crate) fn show_moment(time: Timestamp) -> String {
    i64::try_from(time.0)
        .ok()
        .and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok())
        .unwrap_or(jiff::Timestamp::MAX)
        .to_string()
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show_span(self.0))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text: Cow<'_, str> = if raw.get().starts_with('"') {
            Cow::Owned(serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?)
        } else {
            Cow::Borrowed(raw.get())
        };
        read_span(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show_moment(self.0))
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        read_moment(&text)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for Span {
    fn schema() -> RefOr<Schema> {
        let about = "A duration such as 30s, 1h30m or 500ms; a number of seconds is taken too.";
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(about))
            .into()
    }
}

impl ToSchema for Span {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Duration")
    }
}

impl PartialSchema for Moment {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into()
    }
}

impl ToSchema for Moment {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Time")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_read_back() {
        for (text, micros) in [
            ("30s", 30_000_000),
            ("1h30m", 5_400_000_000),
            ("500ms", 500_000),
            ("1.5h", 5_400_000_000),
            ("0.1", 100_000),
            ("2", 2_000_000),
            ("1d2h3m4s5ms6us", 93_784_005_006),
            ("0", 0),
        ] {
            let span = read_span(text).expect(text);
            assert_eq!(span, Duration::from_micros(micros), "{text}");
            assert_eq!(read_span(&show_span(span)), Ok(span), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "", "abc", "-1", "1 s", "5x", "s", "1e400", "nan", "inf", "1h-3m", "1000000d",
        ] {
            assert!(read_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_and_read_back() {
        let time = read_moment("2030-01-31T10:30:00.25+01:00").expect("a time");
        assert_eq!(show_moment(time), "2030-01-31T09:30:00.25Z");
        for text in [
            "",
            "tomorrow",
            "2030-01-31",
            "1969-12-31T23:59:59Z",
            "2030-02-31T00:00:00Z",
        ] {
            assert!(read_moment(text).is_err(), "{text}");
        }
        assert!(show_moment(Timestamp(u64::MAX)).starts_with("9999-"));
    }
}
