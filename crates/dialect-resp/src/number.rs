//! Numbers in arguments, parsed as in Redis.

use std::time::Duration;

use crate::value::Value;

/// Parses a whole number in the canonical form that Redis requires: no plus sign, no leading zeros, no spaces.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] => return (digits.len() == text.len()).then_some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses a whole number; the error is that of Redis, which names no argument.
pub(crate) fn integer_argument(text: &[u8]) -> Result<i64, Value> {
    integer(text).ok_or_else(|| Value::error("ERR value is not an integer or out of range"))
}

/// Parses a decimal number, with or without an exponent; `nan` is refused.
pub(crate) fn decimal(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().filter(|number: &f64| !number.is_nan())
}

/// Parses the timeout of a blocking command in seconds, rounded up to whole milliseconds; `None`: forever.
pub(crate) fn timeout(text: &[u8]) -> Result<Option<Duration>, Value> {
    // 2^63, beyond which a signed 64-bit number overflows.
    const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;
    const BEHIND_ALL_TIME: f64 = 9_223_370_000_000_000_000.0;
    let Some(seconds) = decimal(text) else {
        return Err(Value::error("ERR timeout is not a float or out of range"));
    };
    let millis = (seconds * 1_000.0).ceil();
    // A number that is too large becomes negative in Redis.
    if !(0.0..TOO_LARGE).contains(&millis) {
        return Err(Value::error("ERR timeout is negative"));
    }
    if millis > BEHIND_ALL_TIME {
        return Err(Value::error("ERR timeout is out of range"));
    }
    let wait = Duration::try_from_secs_f64(millis / 1_000.0).unwrap_or(Duration::MAX);
    Ok((millis > 0.0).then_some(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_written_in_one_way() {
        assert_eq!(integer(b"0"), Some(0));
        assert_eq!(integer(b"-12"), Some(-12));
        assert_eq!(integer(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        for wrong in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "x",
        ] {
            assert_eq!(integer(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn timeouts_are_decimal_and_zero_is_for_ever() {
        for forever in ["0", "0.0", "-0"] {
            assert_eq!(timeout(forever.as_bytes()), Ok(None), "{forever}");
        }
        assert_eq!(timeout(b"2.0"), Ok(Some(Duration::from_secs(2))));
        assert_eq!(timeout(b"0.0001"), Ok(Some(Duration::from_millis(1))));
        let error = |text: &[u8]| match timeout(text) {
            Err(Value::Error(text)) => text.into_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(error(b"-1"), "ERR timeout is negative");
        assert_eq!(error(b"x"), "ERR timeout is not a float or out of range");
        assert_eq!(error(b"nan"), "ERR timeout is not a float or out of range");
        assert_eq!(error(b"inf"), "ERR timeout is negative");
        assert_eq!(error(b"9223371000000000"), "ERR timeout is out of range");
    }
}
