//! Formats times and durations.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

/// Formats a time as RFC 3339 in UTC with microseconds, for JSON.
pub(crate) fn exact(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time)
        .unwrap_or(jiff::Timestamp::MAX)
        .to_string()
}

/// Formats a time in the time zone of this machine, to the second.
pub(crate) fn absolute(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::MAX);
    let zoned = time.to_zoned(jiff::tz::TimeZone::system());
    zoned.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Formats a time relative to now: `3m ago`, `in 5s`, `now`.
pub(crate) fn relative(time: SystemTime, now: SystemTime) -> String {
    match now.duration_since(time) {
        Ok(past) if past < Duration::from_secs(1) => "now".to_owned(),
        Ok(past) => format!("{} ago", span(past)),
        Err(ahead) => format!("in {}", span(ahead.duration())),
    }
}

/// Formats a time both ways: `2026-01-31 09:30:00 (3m ago)`.
pub(crate) fn both(time: SystemTime, now: SystemTime) -> String {
    format!("{} ({})", absolute(time), relative(time, now))
}

/// Formats a duration by its two largest units: `1h 3m`, `45s`, `120ms`.
pub(crate) fn span(span: Duration) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let seconds = span.as_secs();
    if seconds == 0 {
        return match (span.as_millis(), span.as_micros()) {
            (0, 0) => "0s".to_owned(),
            (0, micros) => format!("{micros}us"),
            (millis, _) => format!("{millis}ms"),
        };
    }
    let first = UNITS.iter().position(|unit| seconds >= unit.1).unwrap_or(3);
    let (unit, scale) = UNITS[first];
    let mut out = format!("{}{unit}", seconds / scale);
    if let Some((unit, smaller)) = UNITS.get(first + 1) {
        let rest = seconds % scale / smaller;
        if rest > 0 {
            write!(out, " {rest}{unit}").expect("writing to a string cannot fail");
        }
    }
    out
}

/// Formats a duration as in documents: `1h30m`, `500ms`, in whole units.
pub(crate) use ganger_client::show_span as exact_span;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_show_their_two_largest_units() {
        for (millis, shown) in [
            (0, "0s"),
            (120, "120ms"),
            (45_000, "45s"),
            (3_780_000, "1h 3m"),
            (3_600_000, "1h"),
            (90_061_000, "1d 1h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), shown);
        }
        assert_eq!(exact_span(Duration::from_millis(5_400_500)), "1h30m500ms");
    }

    #[test]
    fn times_are_relative_to_now() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        assert_eq!(relative(now, now), "now");
        assert_eq!(relative(now - Duration::from_secs(60), now), "1m ago");
        assert_eq!(relative(now + Duration::from_secs(5), now), "in 5s");
    }
}
