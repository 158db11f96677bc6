//! Converts values into the text form that PostgreSQL reads.
//!
//! The text does not depend on the column, which may have been created earlier for another type. Values that the NGSI
//! type cannot hold become NULL; values that the column cannot hold are refused by PostgreSQL.

use serde_json::{Number, Value};

use super::ValueType;
use crate::geo::{self, InvalidGeometry};
use crate::python::{self, is_integer};
use crate::time::is_iso8601;

impl ValueType {
    /// Returns the text that is stored for a value; `None` for NULL.
    ///
    /// # Errors
    /// If this is a geometry and the value is not.
    pub fn sql_text(self, value: &Value) -> Result<Option<String>, InvalidGeometry> {
        Ok(match self {
            Self::Number => number(value),
            Self::Integer => integer(value),
            Self::Boolean => boolean(value),
            Self::Text => text(value),
            Self::DateTime => value
                .as_str()
                .filter(|text| is_iso8601(text))
                .map(str::to_owned),
            Self::NgsiLdDate => value.as_str().map(str::to_owned),
            Self::StructuredValue if value.is_object() => Some(python::json(value)),
            Self::StructuredValue | Self::Array => value.is_array().then(|| python::json(value)),
            Self::Geometry(format) => geo::ewkt(format, value)?,
            Self::Other => untyped(value),
        })
    }
}

fn number(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(float_text(number)),
        Value::String(text) => Some(python::float(parse_float(text)?)),
        _ => None,
    }
}

/// Writes a number with a point or an exponent: `5.0` for 5. An integer too large for a double stays as it was written,
/// so that PostgreSQL refuses it instead of losing digits.
fn float_text(number: &Number) -> String {
    let float = python::as_f64(number);
    if float.is_infinite() && is_integer(number) {
        return number.to_string();
    }
    python::float(float)
}

fn integer(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => integer_text(number.as_str()),
        Value::String(text) => integer_text(text),
        _ => None,
    }
}

/// Writes a number without its fraction. Integers of any size stay exact.
fn integer_text(text: &str) -> Option<String> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let whole = if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.trim_start_matches('0').to_owned()
    } else {
        let float = parse_float(text).filter(|float| float.is_finite())?;
        let whole = format!("{:.0}", float.trunc().abs());
        whole.trim_start_matches('0').to_owned()
    };
    if whole.is_empty() {
        return Some("0".to_owned());
    }
    Some(format!("{sign}{whole}"))
}

fn boolean(value: &Value) -> Option<String> {
    let truth = match value {
        Value::Bool(truth) => *truth,
        Value::String(text) if text.eq_ignore_ascii_case("true") => true,
        Value::String(text) if text.eq_ignore_ascii_case("false") => false,
        Value::Number(number) => match number.as_str() {
            "1" => true,
            "0" | "-0" => false,
            _ => return None,
        },
        _ => return None,
    };
    Some(truth.to_string())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(python::repr(other)),
    }
}

fn untyped(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) if is_integer(number) => integer(value),
        Value::Number(number) => Some(float_text(number)),
        Value::String(text) => Some(text.clone()),
        Value::Array(_) | Value::Object(_) => Some(python::json(value)),
    }
}

/// Parses a number from a string. Surrounding blanks, an exponent, `nan` and `inf` are allowed.
fn parse_float(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::geo::Format;

    /// Parses a number as a notification has it, which `json!` cannot write.
    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).expect("a value")
    }

    fn converts(value_type: ValueType, cases: &[(Value, Option<&str>)]) {
        for (value, expected) in cases {
            let found = value_type.sql_text(value).expect("not a geometry");
            assert_eq!(found.as_deref(), *expected, "{value_type:?} of {value}");
        }
    }

    #[test]
    fn numbers_and_strings_that_read_as_one_become_floats() {
        converts(
            ValueType::Number,
            &[
                (json!(5), Some("5.0")),
                (json!(23.3), Some("23.3")),
                (json!("12.5"), Some("12.5")),
                (json!(" 1e3\n"), Some("1000.0")),
                (json!("NaN"), Some("nan")),
                (json!("-Infinity"), Some("-inf")),
                (json!("xx"), None),
                (json!(""), None),
                (json!(true), None),
                (json!([1]), None),
                (json!(null), None),
                (parsed("1e999"), Some("inf")),
                (
                    parsed(&format!("1{}", "0".repeat(400))),
                    Some(&format!("1{}", "0".repeat(400))),
                ),
            ],
        );
    }

    #[test]
    fn integers_are_truncated_towards_zero_and_stay_exact() {
        converts(
            ValueType::Integer,
            &[
                (json!(12), Some("12")),
                (json!(12.9), Some("12")),
                (json!(-12.9), Some("-12")),
                (json!(-0.5), Some("0")),
                (parsed("-0"), Some("0")),
                (parsed("1.5e3"), Some("1500")),
                (json!("12.9"), Some("12")),
                (json!(" +007 "), Some("7")),
                (json!("-9007199254740993"), Some("-9007199254740993")),
                (
                    parsed("1180591620717411303424"),
                    Some("1180591620717411303424"),
                ),
                (json!(1e21), Some("1000000000000000000000")),
                (json!("nan"), None),
                (json!("inf"), None),
                (json!("-"), None),
                (json!(true), None),
                (json!({}), None),
                (json!(null), None),
            ],
        );
    }

    #[test]
    fn booleans_are_read_from_words_and_from_the_integers_one_and_zero() {
        converts(
            ValueType::Boolean,
            &[
                (json!(true), Some("true")),
                (json!("TRUE"), Some("true")),
                (json!("False"), Some("false")),
                (json!(1), Some("true")),
                (json!(0), Some("false")),
                (parsed("-0"), Some("false")),
                (json!(2), None),
                (json!(1.0), None),
                (json!("1"), None),
                (json!("x"), None),
                (json!(null), None),
            ],
        );
    }

    #[test]
    fn strings_stay_and_other_values_are_printed_as_in_python() {
        converts(
            ValueType::Text,
            &[
                (json!(" x "), Some(" x ")),
                (json!(""), Some("")),
                (json!(5), Some("5")),
                (json!(1.5), Some("1.5")),
                (json!(true), Some("True")),
                (json!({"a": 1}), Some("{'a': 1}")),
                (json!(["a", "b"]), Some("['a', 'b']")),
                (json!(null), None),
            ],
        );
    }

    #[test]
    fn dates_are_passed_on_if_they_have_the_form_of_a_date() {
        converts(
            ValueType::DateTime,
            &[
                (
                    json!("2019-01-01T00:00:00+02:00"),
                    Some("2019-01-01T00:00:00+02:00"),
                ),
                (json!("2019"), Some("2019")),
                (json!("nonsense"), None),
                (json!(5), None),
                (json!({"@type": "DateTime", "@value": "2019-01-01"}), None),
            ],
        );
        converts(
            ValueType::NgsiLdDate,
            &[(json!("2019-01-01"), Some("2019-01-01")), (json!(5), None)],
        );
    }

    #[test]
    fn structures_hold_objects_and_lists_and_arrays_hold_lists() {
        converts(
            ValueType::StructuredValue,
            &[
                (json!({"a": [1, "x"]}), Some(r#"{"a": [1, "x"]}"#)),
                (json!([1, "x"]), Some(r#"[1, "x"]"#)),
                (json!("x"), None),
                (json!(null), None),
            ],
        );
        converts(
            ValueType::Array,
            &[
                (json!([1, "x"]), Some(r#"[1, "x"]"#)),
                (json!({"a": 1}), None),
            ],
        );
    }

    #[test]
    fn values_of_unknown_types_are_passed_on_unchanged() {
        converts(
            ValueType::Other,
            &[
                (json!("abc"), Some("abc")),
                (json!(5), Some("5")),
                (json!(5.0), Some("5.0")),
                (json!(false), Some("false")),
                (json!({"z": 1}), Some(r#"{"z": 1}"#)),
                (json!(null), None),
            ],
        );
    }

    #[test]
    fn a_value_that_is_no_geometry_cannot_be_stored() {
        let point = ValueType::Geometry(Format::Point);
        let stored = point
            .sql_text(&json!("41.3, 2.1"))
            .expect("a valid geometry");
        assert_eq!(stored.as_deref(), Some("SRID=4326;POINT(2.1 41.3)"));
        assert_eq!(point.sql_text(&json!(null)), Err(InvalidGeometry));
    }
}
