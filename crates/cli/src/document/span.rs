//! Times and durations as people write them: `30s`, `1h30m`, `2030-01-31T09:30:00Z`.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

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

/// A duration in a document: a string, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// A calendar time in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) SystemTime);

/// Reads `1h30m`, `500ms`, or a bare number of seconds.
pub(crate) fn read_span(text: &str) -> Result<Duration, String> {
    let seconds = match text.parse::<f64>() {
        Ok(seconds) if text.starts_with(|c: char| c.is_ascii_digit() || c == '.') => seconds,
        _ => read_units(text).ok_or_else(|| {
            format!("{text:?} is not a duration: write one such as 30s, 1h30m, 500ms, or a number of seconds")
        })?,
    };
    if !(0.0..=SPAN_SECONDS_MAX).contains(&seconds) {
        return Err(format!(
            "{text:?} is out of range: a duration is at most 100 years"
        ));
    }
    // Whole microseconds, the unit of the server.
    Ok(Duration::from_secs_f64((seconds * 1e6).round() / 1e6))
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

/// Reads RFC 3339, or a duration from `now` such as `+2h` (later) or `-2h` (earlier).
pub(crate) fn read_moment(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    if let Some(span) = text.strip_prefix('+') {
        return Ok(now + read_span(span)?);
    }
    if let Some(span) = text.strip_prefix('-') {
        return Ok(now
            .checked_sub(read_span(span)?)
            .unwrap_or(SystemTime::UNIX_EPOCH));
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| {
        format!(
            "{text:?} is not a time: write RFC 3339 with an offset, such as 2030-01-31T09:30:00Z"
        )
    })?;
    if time < jiff::Timestamp::UNIX_EPOCH {
        return Err(format!("{text:?} is before 1970"));
    }
    Ok(SystemTime::from(time))
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let quoted: Option<String> = serde_json::from_str(raw.get()).ok();
        let text = quoted.as_deref().unwrap_or(raw.get());
        read_span(text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        read_moment(&text, SystemTime::now())
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_units_or_as_seconds() {
        for (text, millis) in [
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("1.5", 1_500),
            ("0", 0),
            ("1d", 86_400_000),
        ] {
            assert_eq!(read_span(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "1w", "-1s", "1h30", "inf", "nan", "1e300", "5 s"] {
            assert!(read_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_rfc_3339_or_relative() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000);
        assert_eq!(read_moment("+1m", now), Ok(now + Duration::from_secs(60)));
        assert_eq!(read_moment("-1m", now), Ok(now - Duration::from_secs(60)));
        assert_eq!(
            read_moment("1970-01-01T02:00:00+01:00", now),
            Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(3_600))
        );
        for text in ["tomorrow", "2030-01-31", "1960-01-01T00:00:00Z"] {
            assert!(read_moment(text, now).is_err(), "{text}");
        }
    }
}
