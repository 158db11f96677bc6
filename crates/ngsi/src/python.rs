//! Formats values as Python does, because QuantumLeap shows them so in problem documents, errors and text columns.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Formats a value like Python's `repr`: `None`, `True`, `5.0`, `'text'`, `['a', 1]`, `{'a': 1}`.
pub fn repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(&mut out, value);
    out
}

/// Formats a float like Python's `repr`: `5.0`, `1e+16`, `1.5e-07`, `nan`, `inf`.
pub fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    // Rust's `Debug` switches to exponents at the same magnitudes as Python, and prints as many digits.
    let shortest = format!("{number:?}");
    let digits = shortest.split('e').next().unwrap_or_default();
    let decimals = digits.split_once('.').map_or(0, |(_, it)| it.len());
    // For a number half-way between two texts of that many digits, Rust prints either, but Python the even one.
    let rounded = if shortest.contains('e') {
        format!("{number:.decimals$e}")
    } else {
        format!("{number:.decimals$}")
    };
    let text = if rounded.parse() == Ok(number) {
        rounded
    } else {
        shortest
    };
    // Python's exponents have a sign and at least two digits.
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
    }
}

/// Formats a value like Python's `json.dumps` with `ensure_ascii=False`: `, ` and `: ` as separators. Numbers keep their
/// text.
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, value);
    out
}

/// Whether Python reads the number as an integer.
pub fn is_integer(number: &Number) -> bool {
    !number.as_str().contains(['.', 'e', 'E'])
}

/// Whether Python considers the value true: not null, false, zero or empty.
pub fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => as_f64(number) != 0.0,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// Returns the number as Python's float; infinite if it is too large.
pub fn as_f64(number: &Number) -> f64 {
    number.as_str().parse().unwrap_or(f64::NAN)
}

fn write_repr(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) if !is_integer(number) => out.push_str(&float(as_f64(number))),
        Value::Number(number) if number.as_str() == "-0" => out.push('0'),
        Value::Number(number) => out.push_str(number.as_str()),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write_repr(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write_text(out, name);
                out.push_str(": ");
                write_repr(out, member);
            }
            out.push('}');
        }
    }
}

/// Writes a string in single quotes, or in double quotes if that avoids escapes.
fn write_text(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for character in text.chars() {
        write_character(out, character, quote);
    }
    out.push(quote);
}

fn write_character(out: &mut String, character: char, quote: char) {
    let code = u32::from(character);
    let written = match character {
        '\\' => write!(out, "\\\\"),
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        '\t' => write!(out, "\\t"),
        _ if character == quote => write!(out, "\\{character}"),
        _ if is_printable(character) => out.write_char(character),
        _ if code <= 0xff => write!(out, "\\x{code:02x}"),
        _ if code <= 0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
    written.expect("a string takes all that is written");
}

/// Whether a character is printable in Python: not a control or format character, not a separator other than the blank,
/// not private, not unassigned.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // Rust escapes characters of the same Unicode categories. It also escapes a combining character without a base, which
    // Python prints, so test it after an `a`.
    let mut buffer = [b'a'; 5];
    let length = 1 + character.encode_utf8(&mut buffer[1..]).len();
    let text = std::str::from_utf8(&buffer[..length]).expect("an `a` and a character are a text");
    text.escape_debug().nth(2).is_none()
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write_json_text(out, name);
                out.push_str(": ");
                write_json(out, member);
            }
            out.push('}');
        }
        Value::String(text) => write_json_text(out, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            write!(out, "{value}").expect("a string takes all that is written");
        }
    }
}

fn write_json_text(out: &mut String, text: &str) {
    out.push_str(&serde_json::to_string(text).expect("every text can be written as JSON"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::{float, is_printable, is_truthy, json, repr};
    use crate::json::parse;

    fn repr_of(text: &str) -> String {
        repr(&parse(text.as_bytes()).expect("valid JSON"))
    }

    #[test]
    fn values_are_printed_as_python_prints_them() {
        for (value, printed) in [
            ("null", "None"),
            ("true", "True"),
            ("false", "False"),
            ("1", "1"),
            ("-0", "0"),
            ("1180591620717411303424", "1180591620717411303424"),
            ("1.50", "1.5"),
            ("1E2", "100.0"),
            ("-0.0", "-0.0"),
            ("1e400", "inf"),
            ("[]", "[]"),
            ("{}", "{}"),
            (r#"["a",null,[1]]"#, "['a', None, [1]]"),
            (
                r#"{"a":1,"b":{"c":"it's"}}"#,
                r#"{'a': 1, 'b': {'c': "it's"}}"#,
            ),
        ] {
            assert_eq!(repr_of(value), printed);
        }
    }

    #[test]
    fn floats_are_printed_as_python_prints_them() {
        for (number, printed) in [
            (5.0, "5.0"),
            (0.1, "0.1"),
            (-23.3, "-23.3"),
            (1e15, "1000000000000000.0"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (5e-324, "5e-324"),
            (4_237_753_143_705_017.0 / 4.0, "1059438285926254.2"),
            (421_823_707_942_549.0 / 16.0, "26363981746409.312"),
            (f64::NAN, "nan"),
            (-f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float(number), printed);
        }
    }

    #[test]
    fn strings_are_quoted_and_escaped_as_python_does() {
        for (text, printed) in [
            ("", "''"),
            ("it's", "\"it's\""),
            ("say \"x\"", "'say \"x\"'"),
            ("it's \"x\"", r#"'it\'s "x"'"#),
            ("a\\b\n\r\t", r"'a\\b\n\r\t'"),
            ("\0\u{8}\u{1b}\u{7f}", r"'\x00\x08\x1b\x7f'"),
            // Letters, marks and emoji are printed; invisible characters are escaped.
            (
                "\u{e9}\u{301}\u{4e2d}\u{1f600}",
                "'\u{e9}\u{301}\u{4e2d}\u{1f600}'",
            ),
            ("\u{301}", "'\u{301}'"),
            ("\u{85}\u{a0}\u{ad}", r"'\x85\xa0\xad'"),
            ("\u{200b}\u{2028}\u{feff}", r"'\u200b\u2028\ufeff'"),
            ("\u{e000}\u{ffff}", r"'\ue000\uffff'"),
            ("\u{10ffff}\u{e0001}", r"'\U0010ffff\U000e0001'"),
        ] {
            assert_eq!(repr(&json!(text)), printed);
        }
    }

    #[test]
    fn json_has_pythons_separators_and_keeps_numbers_and_characters() {
        let text = "{\"a\": [1, 2.50, {\"b\": null}], \"\u{e9}\": \"x\\n\\u0000\\\"\\\\\u{2028}\", \"c\": {}, \"d\": []}";
        let value = parse(text.as_bytes()).expect("valid JSON");
        assert_eq!(json(&value), text);
    }

    #[test]
    fn empty_values_and_zeros_are_not_truthy() {
        for text in [
            "null", "false", "0", "-0", "0.0", "0e5", "1e-999", "\"\"", "[]", "{}",
        ] {
            assert!(
                !is_truthy(&parse(text.as_bytes()).expect("valid JSON")),
                "{text}"
            );
        }
        for text in [
            "true",
            "1",
            "-0.1",
            "1e999",
            "\" \"",
            "[null]",
            "{\"a\": null}",
        ] {
            assert!(
                is_truthy(&parse(text.as_bytes()).expect("valid JSON")),
                "{text}"
            );
        }
    }

    /// Parses a string literal that [`repr`] wrote, by Python's grammar.
    fn unquoted(literal: &str) -> String {
        let quote = literal.chars().next().expect("a literal has quotes");
        assert!(matches!(quote, '\'' | '"') && literal.ends_with(quote));
        let inner = &literal[1..literal.len() - 1];
        let (mut text, mut rest) = (String::new(), inner.chars());
        while let Some(character) = rest.next() {
            assert!(
                character != quote && is_printable(character),
                "{character:?} in {literal}"
            );
            if character != '\\' {
                text.push(character);
                continue;
            }
            let digits = match rest.next().expect("something is escaped") {
                'n' => {
                    text.push('\n');
                    continue;
                }
                'r' => {
                    text.push('\r');
                    continue;
                }
                't' => {
                    text.push('\t');
                    continue;
                }
                'x' => 2,
                'u' => 4,
                'U' => 8,
                escaped => {
                    assert!(escaped == '\\' || escaped == quote);
                    text.push(escaped);
                    continue;
                }
            };
            let code: String = rest.by_ref().take(digits).collect();
            let code = u32::from_str_radix(&code, 16).expect("hexadecimal digits");
            text.push(char::from_u32(code).expect("a character"));
        }
        text
    }

    proptest! {
        #[test]
        fn a_printed_string_can_be_parsed_back(text in any::<String>()) {
            prop_assert_eq!(unquoted(&repr(&json!(text))), text);
        }

        #[test]
        fn a_printed_string_with_quotes_and_controls_can_be_parsed_back(text in "['\"\\\\\n\u{0}-\u{ff}a]{0,12}") {
            prop_assert_eq!(unquoted(&repr(&json!(text))), text);
        }

        #[test]
        fn a_printed_float_is_the_same_float(number in any::<f64>()) {
            let again: f64 = float(number).parse().expect("a number");
            prop_assert!(again.to_bits() == number.to_bits() || number.is_nan() && again.is_nan());
        }
    }
}
