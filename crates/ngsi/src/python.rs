//! Values as Python prints them, because QuantumLeap's users see them so: in problem documents, errors, and text columns.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// What Python's `repr` gives for the value: `None`, `True`, `5.0`, `'text'`, `['a', 1]`, `{'a': 1}`.
pub fn repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(&mut out, value);
    out
}

/// What Python's `repr` gives for a float: `5.0`, `1e+16`, `1.5e-07`, `nan`, `inf`.
pub fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    // Rust's own notation for debugging turns to exponents at the same sizes as Python's, and has as many digits.
    let shortest = format!("{number:?}");
    let digits = shortest.split('e').next().unwrap_or_default();
    let decimals = digits.split_once('.').map_or(0, |(_, it)| it.len());
    // Half-way between two texts of that many digits Rust takes either of them, but Python the even one, as rounding does.
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
    // Python's exponents have a sign and two digits at least.
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
    }
}

/// What Python's `json.dumps` gives for the value, `, ` and `: ` between its parts, other characters left as they are.
/// Numbers keep the text that they have.
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, value);
    out
}

/// Whether Python reads the number as an integer.
pub fn is_integer(number: &Number) -> bool {
    !number.as_str().contains(['.', 'e', 'E'])
}

/// Whether the value counts as true in Python: neither null, false, zero, nor empty.
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

/// The number as Python's float: one that is too large is infinite.
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

/// In single quotes, unless only double ones save escaping.
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

/// Whether a character is neither a control, a separator other than the blank, private, nor unassigned.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // The same set of Unicode's categories decides how Rust shows a text; a character that combines with the one before is
    // shown by both, if there is one before.
    let mut buffer = [b'a'; 5];
    let length = 1 + character.encode_utf8(&mut buffer[1..]).len();
    let shown = std::str::from_utf8(&buffer[..length]).expect("an `a` and a character are a text");
    shown.escape_debug().nth(2).is_none()
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
        repr(&parse(text.as_bytes()).expect("it is JSON"))
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
    fn texts_are_quoted_and_escaped_as_python_does() {
        for (text, printed) in [
            ("", "''"),
            ("it's", "\"it's\""),
            ("say \"x\"", "'say \"x\"'"),
            ("it's \"x\"", r#"'it\'s "x"'"#),
            ("a\\b\n\r\t", r"'a\\b\n\r\t'"),
            ("\0\u{8}\u{1b}\u{7f}", r"'\x00\x08\x1b\x7f'"),
            // Letters, marks, and pictures are left; what cannot be seen is not.
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
        let value = parse(text.as_bytes()).expect("it is JSON");
        assert_eq!(json(&value), text);
    }

    #[test]
    fn nothing_empty_or_zero_is_truthy() {
        for text in [
            "null", "false", "0", "-0", "0.0", "0e5", "1e-999", "\"\"", "[]", "{}",
        ] {
            assert!(
                !is_truthy(&parse(text.as_bytes()).expect("it is JSON")),
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
                is_truthy(&parse(text.as_bytes()).expect("it is JSON")),
                "{text}"
            );
        }
    }

    /// Reads what [`repr`] gives for a text, following Python's grammar of literals.
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
        fn a_printed_text_says_which_text_it_was(text in any::<String>()) {
            prop_assert_eq!(unquoted(&repr(&json!(text))), text);
        }

        #[test]
        fn a_printed_text_with_quotes_and_controls_says_which_text_it_was(text in "['\"\\\\\n\u{0}-\u{ff}a]{0,12}") {
            prop_assert_eq!(unquoted(&repr(&json!(text))), text);
        }

        #[test]
        fn a_printed_float_is_the_same_float(number in any::<f64>()) {
            let again: f64 = float(number).parse().expect("a number");
            prop_assert!(again.to_bits() == number.to_bits() || number.is_nan() && again.is_nan());
        }
    }
}
