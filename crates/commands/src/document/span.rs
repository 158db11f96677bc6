//! Parses times and durations as people write them: `30s`, `1h30m`, `2030-01-31T09:30:00Z`.

use std::time::{Duration, SystemTime};

/// Parses a duration such as `1h30m` or `500ms`; a number without unit is in seconds.
pub(crate) fn read_span(text: &str) -> Result<Duration, String> {
    ganger_client::read_span(text).map_err(|error| error.to_string())
}

/// Parses a time like [`read_moment`], or a date such as `2030-01-31`, which means midnight in UTC.
pub(crate) fn read_day(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    if text.len() == "2030-01-31".len() && !text.starts_with(['+', '-']) {
        let midnight = format!("{text}T00:00:00Z");
        return read_moment(&midnight, now).map_err(|_| {
            format!("{text:?} is not a day from 1970 on: write one such as 2030-01-31, or -24h")
        });
    }
    read_moment(text, now)
}

/// Parses a time in RFC 3339, or relative to `now` such as `+2h` (later) or `-2h` (earlier).
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
            "{text:?} is not a time: write RFC 3339 with an offset, such as 2030-01-31T09:30:00Z, or a duration from now, such as -24h or +2h"
        )
    })?;
    if time < jiff::Timestamp::UNIX_EPOCH {
        return Err(format!("{text:?} is before 1970"));
    }
    Ok(SystemTime::from(time))
}

#[cfg(test)]
mod tests {
    use super::*;

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
