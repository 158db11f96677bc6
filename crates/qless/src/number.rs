//! Reads and writes numbers like the script, which uses C's functions.
//!
//! Every number is a 64-bit float. It is parsed like `strtod`, with spaces around it, and written with 14 significant
//! digits like `%.14g`. In between it keeps its full precision.

use std::io::Write as _;

/// Number of significant digits in a written number.
const DIGITS: i32 = 14;

/// Whole numbers below this limit have at most that many digits.
const PLAIN_BELOW: f64 = 1e14;

/// Maximum whole number that is exact: 2^53. Offsets and counts above it are refused.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Parses a decimal or hexadecimal number with spaces before and after it. Returns `None` for other texts, and for
/// infinite numbers.
pub(crate) fn parse(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let text = text.trim_matches(|it: char| matches!(it, ' ' | '\t'..='\r'));
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let size = match unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"))
    {
        Some(digits) => read_hexadecimal(digits)?,
        None => read_decimal(unsigned)?,
    };
    if !size.is_finite() {
        return None;
    }
    Some(if text.starts_with('-') { -size } else { size })
}

/// Converts a number that is whole and small enough to be exact; `None` otherwise.
pub(crate) fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= WHOLE_MAX).then(|| truncate(number))
}

/// Rounds towards zero, as Redis converts a number to an integer reply. Numbers out of range become the largest or the
/// smallest integer.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "cutting is what is asked for; numbers that are too large become the largest"
)]
pub(crate) fn truncate(number: f64) -> i64 {
    number as i64
}

/// Adds two numbers. The result is never infinite: it is limited to the range of finite numbers.
pub(crate) fn sum(left: f64, right: f64) -> f64 {
    (left + right).clamp(f64::MIN, f64::MAX)
}

/// Converts a count to a number.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "the script has no other numbers; counts this large do not occur"
)]
pub(crate) fn from_count(count: u64) -> f64 {
    count as f64
}

/// Converts a length to a number.
pub(crate) fn from_length(length: usize) -> f64 {
    from_count(u64::try_from(length).unwrap_or(u64::MAX))
}

/// Appends a number to `out`, in the format of [`write()`].
pub(crate) fn write_to(out: &mut Vec<u8>, number: f64) {
    if number.fract() == 0.0 && number.abs() < PLAIN_BELOW && number != 0.0 {
        // Most numbers are whole and small, and need no rounding.
        write!(out, "{}", truncate(number)).expect("memory takes what is written");
    } else {
        out.extend_from_slice(write(number).as_bytes());
    }
}

/// Formats a number like `%.14g`. JSON has only finite numbers: infinity becomes the largest number, and `NaN` becomes
/// 0.
pub(crate) fn write(number: f64) -> String {
    if number == 0.0 || number.is_nan() {
        return if number.is_sign_negative() && !number.is_nan() {
            "-0".to_owned()
        } else {
            "0".to_owned()
        };
    }
    let number = number.clamp(f64::MIN, f64::MAX);
    let scientific = format!("{:.13e}", number.abs());
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("scientific notation has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a whole number");
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    let sign = if number < 0.0 { "-" } else { "" };
    if (-4..DIGITS).contains(&exponent) {
        format!("{sign}{}", decimal_notation(digits, exponent))
    } else {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let direction = if exponent < 0 { '-' } else { '+' };
        format!(
            "{sign}{first}{point}{rest}e{direction}{:02}",
            exponent.unsigned_abs()
        )
    }
}

/// Returns the digits in decimal notation; `exponent` is the power of ten of the first digit.
fn decimal_notation(digits: &str, exponent: i32) -> String {
    let Ok(before) = usize::try_from(exponent + 1) else {
        let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
        return format!("0.{}{digits}", "0".repeat(zeros));
    };
    if before == 0 {
        format!("0.{digits}")
    } else if digits.len() <= before {
        format!("{digits}{}", "0".repeat(before - digits.len()))
    } else {
        let (whole, fraction) = digits.split_at(before);
        format!("{whole}.{fraction}")
    }
}

fn read_decimal(text: &str) -> Option<f64> {
    // The standard parser also accepts words and further signs, which are no numbers here.
    let begins_well = text.starts_with(|it: char| it.is_ascii_digit() || it == '.');
    let is_number = |it: u8| matches!(it, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    (begins_well && text.bytes().all(is_number))
        .then(|| text.parse().ok())
        .flatten()
}

/// Parses hexadecimal digits with a point and an exponent of two, like C.
fn read_hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.split_once(['p', 'P']) {
        Some((digits, exponent)) => (digits, read_exponent(exponent)?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut mantissa = 0_u64;
    let mut exponent = exponent;
    for (digits, step) in [(whole, 0_i64), (fraction, -4)] {
        for digit in digits.chars() {
            let digit = u64::from(digit.to_digit(16)?);
            exponent += step;
            if mantissa >> 60 == 0 {
                mantissa = mantissa << 4 | digit;
            } else {
                // Further digits do not fit: one bit stands for all of them, so that rounding is right.
                mantissa |= u64::from(digit != 0);
                exponent += 4;
            }
        }
    }
    Some(scale(from_count(mantissa), exponent))
}

fn read_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    // Larger exponents give the same result as this one.
    let size = digits
        .parse::<i64>()
        .map_or(i64::from(i32::MAX), |it| it.min(i64::from(i32::MAX)));
    Some(if text.starts_with('-') { -size } else { size })
}

/// Multiplies the number by 2 to the power of `exponent`.
fn scale(mut number: f64, mut exponent: i64) -> f64 {
    const STEP: i64 = 512;
    let (up, down) = (2_f64.powi(512), 2_f64.powi(-512));
    while exponent > STEP && number.is_normal() {
        number *= up;
        exponent -= STEP;
    }
    while exponent < -STEP && number.is_normal() {
        number *= down;
        exponent += STEP;
    }
    let rest = i32::try_from(exponent.clamp(-STEP, STEP)).unwrap_or(0);
    number * 2_f64.powi(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{parse, sum, truncate, whole, write, write_to};

    /// Numbers with the text that C writes for them.
    const WRITTEN: [(f64, &str); 34] = [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (60.0, "60"),
        (100.0, "100"),
        (0.5, "0.5"),
        (12345.678, "12345.678"),
        (1_000_000.0, "1000000"),
        (1_500_000_070.5, "1500000070.5"),
        (1_795_235_627.118_649_5, "1795235627.1186"),
        (1e15, "1e+15"),
        (1e14, "1e+14"),
        (99_999_999_999_999.0, "99999999999999"),
        (99_999_999_999_999.5, "1e+14"),
        (100_000_000_000_000.5, "1e+14"),
        (1e-5, "1e-05"),
        (1e-4, "0.0001"),
        (0.000_123_456_789_012_345_6, "0.00012345678901235"),
        (123_456_789_012_345_678.0, "1.2345678901235e+17"),
        (0.1 + 0.2, "0.3"),
        (49.143_921_292_465, "49.143921292465"),
        (1e100, "1e+100"),
        (-1e-300, "-1e-300"),
        (5e-324, "4.9406564584125e-324"),
        (f64::MAX, "1.7976931348623e+308"),
        (1_234_567_890_123.25, "1234567890123.2"),
        (1_234_567_890_123.75, "1234567890123.8"),
        (9.999_999_999_999_95, "10"),
        (9_007_199_254_740_992.0, "9.007199254741e+15"),
        (9_223_372_036_854_775_808.0, "9.2233720368548e+18"),
        (1.0 / 3.0, "0.33333333333333"),
        (-2.0 / 3.0, "-0.66666666666667"),
        (1e21, "1e+21"),
    ];

    #[test]
    fn a_number_is_written_as_c_writes_it_with_fourteen_digits() {
        for (number, text) in WRITTEN {
            assert_eq!(write(number), text);
        }
    }

    #[test]
    fn the_short_way_writes_the_same() {
        let edges = [
            99_999_999_999_999.0,
            1e14,
            100_000_000_000_001.0,
            1e15,
            f64::MAX,
            f64::NAN,
        ];
        for number in WRITTEN.map(|(number, _)| number).into_iter().chain(edges) {
            for number in [number, -number, number.trunc(), -number.trunc()] {
                let mut out = b"before ".to_vec();
                write_to(&mut out, number);
                assert_eq!(out, format!("before {}", write(number)).into_bytes());
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_written_as_a_number_all_the_same() {
        assert_eq!(write(f64::INFINITY), "1.7976931348623e+308");
        assert_eq!(write(f64::NEG_INFINITY), "-1.7976931348623e+308");
        assert_eq!(write(f64::NAN), "0");
    }

    #[test]
    fn a_number_is_read_as_c_reads_it_with_spaces_around_it() {
        let cases: [(&str, f64); 20] = [
            ("5", 5.0),
            (" 5 ", 5.0),
            ("\t\n\x0b\x0c\r5\t\n\x0b\x0c\r", 5.0),
            ("-0.5", -0.5),
            ("+7", 7.0),
            ("1e3", 1000.0),
            ("1E+3", 1000.0),
            ("1e-3", 0.001),
            (".5", 0.5),
            ("5.", 5.0),
            ("007", 7.0),
            ("0x10", 16.0),
            ("0XfF", 255.0),
            ("-0x10", -16.0),
            ("0x.8", 0.5),
            ("0x1.8p3", 12.0),
            ("0x1p-2", 0.25),
            ("0x20000000000001", 9_007_199_254_740_992.0),
            (
                "0x200000000000010000000000000001p-64",
                9_007_199_254_740_994.0,
            ),
            ("1795235627.1186495", 1_795_235_627.118_649_5),
        ];
        for (text, number) in cases {
            assert_eq!(
                parse(text.as_bytes()).map(f64::to_bits),
                Some(number.to_bits()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", " ", ".", "-", "+", "e5", "1e", "1e+", "1.2.3", "--1", "+-1", "5 5", "5x", "x",
            "inf", "-inf", "infinity", "nan", "NaN", "1e999", "-1e999", "0x", "0x.", "0xg", "0x1p",
            "0x1p+", "0x1p9999", "0x1p1x", "0x-1", "1_000", "5\0", "\u{a0}5", "null", "true",
            "0b1", "1f",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"\xff5"), None);
    }

    #[test]
    fn only_whole_numbers_that_are_exact_are_whole() {
        assert_eq!(whole(25.0), Some(25));
        assert_eq!(whole(-1.0), Some(-1));
        assert_eq!(whole(-0.0), Some(0));
        assert_eq!(whole(0.5), None);
        assert_eq!(whole(1e300), None);
    }

    #[test]
    fn a_sum_stays_finite() {
        assert_eq!(write(sum(1.5, 2.0)), "3.5");
        assert_eq!(write(sum(1e308, 1e308)), "1.7976931348623e+308");
        assert_eq!(write(sum(-1e308, -1e308)), "-1.7976931348623e+308");
    }

    #[test]
    fn a_number_is_cut_towards_zero() {
        assert_eq!(truncate(71.75), 71);
        assert_eq!(truncate(-2.75), -2);
        assert_eq!(truncate(1e300), i64::MAX);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_but_for_the_digits_that_are_cut(number in any::<f64>()) {
            prop_assume!(number.is_finite());
            let back = parse(write(number).as_bytes());
            // The largest number is rounded up beyond the range of finite numbers, so parsing it gives nothing.
            let is_near = back.is_some_and(|it| (it - number).abs() <= number.abs() * 1e-13 || number.abs() < 1e-300);
            prop_assert!(is_near || number.abs() > 1e308);
        }

        #[test]
        fn a_decimal_number_is_read_at_full_precision(number in any::<f64>()) {
            prop_assume!(number.is_finite());
            prop_assert_eq!(parse(format!("{number:e}").as_bytes()).map(f64::to_bits), Some(number.to_bits()));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&text);
        }

        #[test]
        fn no_text_of_the_letters_of_numbers_makes_the_reader_panic(text in "[ +-]?(0x)?[0-9a-fA-F.]{0,40}[eEpP]?[+-]?[0-9]{0,25}") {
            prop_assert!(parse(text.as_bytes()).is_none_or(f64::is_finite));
        }
    }
}
