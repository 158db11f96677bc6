//! Property tests of conversion: it accepts any value, and its text can be read as the type of the column.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::{ColumnType, ValueType, type_of, value_of};
use crate::Entity;
use crate::any_json;
use crate::geo::Format;
use crate::time::is_iso8601;

/// All known types but the geometries, the two types whose values decide, and an unknown one.
pub(crate) const PLAIN_TYPES: [&str; 11] = [
    "Number",
    "Integer",
    "Boolean",
    "Text",
    "DateTime",
    "ISO8601",
    "StructuredValue",
    "Array",
    "Property",
    "Relationship",
    "Foo",
];

/// The types of geometries, which refuse most values.
pub(crate) const GEO_TYPES: [&str; 6] = [
    "geo:point",
    "geo:line",
    "geo:polygon",
    "geo:box",
    "geo:json",
    "GeoProperty",
];

/// Generates values, among them many edge cases of the types.
fn value() -> impl Strategy<Value = Value> {
    let number =
        "[ +-]?([0-9]{0,22}|0x1f|1_0)\\.?[0-9]{0,3}(e-?[0-9]{1,3})?|[+-]?(inf|nan|Infinity)";
    let word = "true|FALSE|True|\"?2019-01-01\"?|2019|2019-W01|12:00";
    prop_oneof![
        2 => any_json::value(),
        1 => number.prop_map(Value::from),
        1 => word.prop_map(Value::from),
        1 => word.prop_map(|date| serde_json::json!({"@type": "DateTime", "@value": date})),
    ]
}

fn attribute() -> impl Strategy<Value = Entity> {
    let ngsi_type = prop_oneof![3 => select(&PLAIN_TYPES[..]), 1 => select(&GEO_TYPES[..])];
    (ngsi_type, value(), value()).prop_map(|(ngsi_type, value, object)| {
        Entity::from_iter([
            ("type".to_owned(), ngsi_type.into()),
            ("value".to_owned(), value),
            ("object".to_owned(), object),
        ])
    })
}

/// Whether PostgreSQL can read the text into a column of this type. The range of integers and the validity of dates are
/// not checked here.
fn is_readable_as(text: &str, column: ColumnType) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    match column {
        ColumnType::Text | ColumnType::Timestamp => true,
        ColumnType::Double => text.parse::<f64>().is_ok(),
        ColumnType::BigInt => {
            let is_canonical = digits == "0" || !digits.starts_with('0');
            is_canonical && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        }
        ColumnType::Boolean => text == "true" || text == "false",
        ColumnType::Json => serde_json::from_str::<Value>(text).is_ok(),
        ColumnType::Geometry => text.starts_with("SRID=4326;"),
    }
}

proptest! {
    #[test]
    fn an_attributes_own_column_can_read_its_text(attribute in attribute()) {
        let value = value_of(&attribute);
        let value_type = type_of(&attribute).value_type;
        if let Ok(Some(text)) = value_type.sql_text(value) {
            let column = value_type.column_type(value);
            prop_assert!(is_readable_as(&text, column), "{column:?}: {text}");
        }
    }

    #[test]
    fn only_geometries_refuse_values_and_only_they_refuse_null(attribute in attribute(), value in value()) {
        let value_type = type_of(&attribute).value_type;
        if matches!(value_type, ValueType::Geometry(_)) {
            prop_assert!(value_type.sql_text(&Value::Null).is_err());
        } else {
            prop_assert!(value_type.sql_text(&value).is_ok());
            prop_assert_eq!(value_type.sql_text(&Value::Null), Ok(None));
        }
    }

    #[test]
    fn json_and_text_keep_the_value(value in value()) {
        if let Ok(Some(text)) = ValueType::StructuredValue.sql_text(&value) {
            let read: Value = serde_json::from_str(&text).expect("valid JSON");
            prop_assert_eq!(&read, &value);
        }
        if let Value::String(text) = &value {
            prop_assert_eq!(ValueType::Text.sql_text(&value), Ok(Some(text.clone())));
            prop_assert_eq!(ValueType::Other.sql_text(&value), Ok(Some(text.clone())));
        }
    }

    #[test]
    fn a_stored_time_has_the_form_of_a_time(value in value()) {
        if let Ok(Some(text)) = ValueType::DateTime.sql_text(&value) {
            prop_assert!(is_iso8601(&text));
        }
    }

    #[test]
    fn integers_are_the_numbers_truncated_towards_zero(number in -1e15..1e15_f64) {
        let value = serde_json::json!(number);
        let text = ValueType::Integer.sql_text(&value).expect("not a geometry").expect("a number");
        prop_assert_eq!(text.parse::<f64>(), Ok(number.trunc() + 0.0));
        let as_text = Value::from(format!(" {number} "));
        prop_assert_eq!(ValueType::Integer.sql_text(&as_text), Ok(Some(text)));
    }

    #[test]
    fn a_geometry_is_converted_or_refused(value in value()) {
        for format in [Format::Point, Format::Line, Format::Polygon, Format::Box, Format::Json] {
            let text = ValueType::Geometry(format).sql_text(&value);
            prop_assert!(text.is_err() || text.iter().flatten().all(|text| is_readable_as(text, ColumnType::Geometry)));
        }
    }
}
