//! Durations as people write them: `30s`, `1h30m`, `500ms`, or a number of seconds.

use std::time::Duration;

use crate::time::micros;

/// Longest duration in seconds: a hundred years. A longer one is probably a mistake in the unit.
const SECONDS_MAX: f64 = 3_155_760_000.0;

/// Units with their lengths in microseconds, longest first.
const UNITS: [(&str, u32, u32); 6] = [
    ("d", 86_400, 1_000_000),
    ("h", 3_600, 1_000_000),
    ("m", 60, 1_000_000),
    ("s", 1, 1_000_000),
    ("ms", 1, 1_000),
    ("us", 1, 1),
];

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// The text cannot be parsed.
    #[error(
        "{text:?} is not a duration: write one such as 30s, 1h30m, 500ms, or a number of seconds"
    )]
    Unreadable {
        /// The text that cannot be read as a duration.
        text: String,
    },
    /// The duration is negative or longer than a hundred years.
    #[error("{text:?} is out of range: a duration is at most 100 years")]
    OutOfRange {
        /// The text whose duration is out of range.
        text: String,
    },
}

/// Parses `1h30m`, `500ms`, or a plain number of seconds, and rounds it to whole microseconds.
///
/// # Errors
/// If the text cannot be parsed, or the duration is longer than 100 years.
pub fn read_span(text: &str) -> Result<Duration, SpanError> {
    let begins_with_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let seconds = match text.parse::<f64>() {
        Ok(seconds) if begins_with_number => seconds,
        _ => read_units(text).ok_or_else(|| SpanError::Unreadable {
            text: text.to_owned(),
        })?,
    };
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(SpanError::OutOfRange {
            text: text.to_owned(),
        });
    }
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
        let (_, many, micros) = UNITS.iter().find(|known| known.0 == unit)?;
        seconds += number.parse::<f64>().ok()? * f64::from(*many) * f64::from(*micros) / 1e6;
        rest = tail;
    }
    Some(seconds)
}

/// Formats a duration in the form that [`read_span`] parses, in whole units: `1h30m`.
pub fn show_span(span: Duration) -> String {
    let mut rest = micros(span);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    for (unit, many, micros) in UNITS {
        let scale = u64::from(many) * u64::from(micros);
        if rest >= scale {
            out.push_str(&(rest / scale).to_string());
            out.push_str(unit);
            rest %= scale;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_read_back() {
        for (text, micros, shown) in [
            ("30s", 30_000_000, "30s"),
            ("1h30m", 5_400_000_000, "1h30m"),
            ("90m", 5_400_000_000, "1h30m"),
            ("500ms", 500_000, "500ms"),
            ("1.5", 1_500_000, "1s500ms"),
            ("0.1", 100_000, "100ms"),
            ("0", 0, "0s"),
            ("1d", 86_400_000_000, "1d"),
            ("7us", 7, "7us"),
            ("1.5h", 5_400_000_000, "1h30m"),
            ("1d2h3m4s5ms6us", 93_784_005_006, "1d2h3m4s5ms6us"),
        ] {
            let span = read_span(text).expect(text);
            assert_eq!(span, Duration::from_micros(micros), "{text}");
            assert_eq!(show_span(span), shown, "{text}");
            assert_eq!(read_span(shown), Ok(span), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "", "s", "1w", "1h30", "inf", "nan", "5 s", "-1s", "-1", "abc", "5x", "1h-3m",
        ] {
            let refused = read_span(text).expect_err(text);
            assert!(matches!(refused, SpanError::Unreadable { .. }), "{text}");
        }
        for text in ["1e300", "1e400", "40000d"] {
            let refused = read_span(text).expect_err(text);
            assert!(matches!(refused, SpanError::OutOfRange { .. }), "{text}");
        }
    }
}
