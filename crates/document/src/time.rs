//! Times and durations in JSON.
//!
//! Durations are strings such as `30s`, `1h30m`, `500ms`, or numbers of seconds. Calendar times are
//! RFC 3339 with an offset, such as `2030-01-31T09:30:00Z`.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use ganger_types::{Timestamp, span};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{RefOr, schema::KnownFormat};
use utoipa::{PartialSchema, ToSchema};

/// A duration on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A calendar time on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub Timestamp);

/// Reads `1h30m`, `500ms`, or a bare number of seconds.
///
/// # Errors
/// The reason, for people.
pub fn read_span(text: &str) -> Result<Duration, String> {
    span::read_span(text).map_err(|error| error.to_string())
}

/// Reads a time in RFC 3339 with an offset.
///
/// # Errors
/// The reason, for people.
pub fn read_moment(text: &str) -> Result<Timestamp, String> {
    let wanted = "a time is RFC 3339 with an offset, such as 2030-01-31T09:30:00Z";
    let time: jiff::Timestamp = text
        .parse()
        .map_err(|_| format!("{text:?} is not a time: {wanted}"))?;
    u64::try_from(time.as_microsecond())
        .map(Timestamp)
        .map_err(|_| format!("{text:?} is before 1970: {wanted}"))
}

/// Formats a time as RFC 3339; a time beyond the end of the calendar is written as the end.
pub fn show_moment(time: Timestamp) -> String {
    i64::try_from(time.0)
        .ok()
        .and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok())
        .unwrap_or(jiff::Timestamp::MAX)
        .to_string()
}

/// The calendar time of a timestamp; one beyond the system's range is the epoch.
pub fn calendar(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_micros(time.0))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// For `#[serde(serialize_with)]`: a calendar time as text.
pub(crate) fn moment<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    Moment(Timestamp(micros)).serialize(serializer)
}

/// For `#[serde(serialize_with)]`: as [`moment`], or null.
#[expect(clippy::ref_option, reason = "serde passes fields by reference")]
pub(crate) fn moment_if_any<S: Serializer>(
    time: &Option<SystemTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => moment(time, serializer),
        None => serializer.serialize_none(),
    }
}

/// For `#[serde(serialize_with)]`: a duration as text, or null.
#[expect(clippy::ref_option, reason = "serde passes fields by reference")]
pub(crate) fn span_if_any<S: Serializer>(
    span: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    span.map(Span).serialize(serializer)
}

/// For `#[serde(serialize_with)]`: as [`seconds`], or null.
#[expect(clippy::ref_option, reason = "serde passes fields by reference")]
pub(crate) fn seconds_if_any<S: Serializer>(
    span: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_secs_f64()).serialize(serializer)
}

/// For `#[serde(serialize_with)]`: a duration in seconds.
pub(crate) fn seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&span::show_span(self.0))
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
