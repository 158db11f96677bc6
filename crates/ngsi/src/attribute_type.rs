//! The types of NGSI attributes, the columns that they become, and the conversion of their values.
//!
//! An attribute's type decides the type of its column and the text form of its values. One attribute decides for all
//! entities of a group, so a [`ValueType`] must convert any value.

mod convert;
mod infer;

#[cfg(test)]
pub(crate) mod properties;

use std::borrow::Cow;

use serde_json::Value;

use crate::Entity;
use crate::geo::Format;
use crate::python;

/// The SQL type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// The column type `text`.
    Text,
    /// The column type `double precision`.
    Double,
    /// The column type `bigint`.
    BigInt,
    /// The column type `boolean`.
    Boolean,
    /// `timestamp with time zone`
    Timestamp,
    /// The column type `jsonb`.
    Json,
    /// `geometry` of PostGIS, or `text` where PostGIS is missing.
    Geometry,
}

/// The way in which the values of an attribute are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// The NGSI type `Number`.
    Number,
    /// The NGSI type `Integer`.
    Integer,
    /// The NGSI type `Boolean`.
    Boolean,
    /// The NGSI type `Text`.
    Text,
    /// NGSI type `DateTime` or `ISO8601`.
    DateTime,
    /// `Property` whose value is an NGSI-LD date, `{"@type": "DateTime", "@value": ".."}`.
    NgsiLdDate,
    /// The NGSI type `StructuredValue`.
    StructuredValue,
    /// The NGSI type `Array`.
    Array,
    /// NGSI type `geo:..` or `GeoProperty`.
    Geometry(Format),
    /// `Relationship` and any other name: values are stored as they are.
    Other,
}

/// An attribute's type: how its values are stored, and the name for the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeType<'a> {
    /// The way in which values are stored.
    pub value_type: ValueType,
    /// The NGSI type as given, or the inferred one.
    pub name: Cow<'a, str>,
}

impl ValueType {
    /// Returns the value type of an NGSI type; `None` for unknown names, and for `Property` and `Relationship`, whose
    /// values decide.
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "Number" => Some(Self::Number),
            "Integer" => Some(Self::Integer),
            "Boolean" => Some(Self::Boolean),
            "Text" => Some(Self::Text),
            "DateTime" | "ISO8601" => Some(Self::DateTime),
            "StructuredValue" => Some(Self::StructuredValue),
            "Array" => Some(Self::Array),
            _ => Format::of(name).map(Self::Geometry),
        }
    }

    /// Returns the type of a new column for an attribute of this type with this value.
    pub fn column_type(self, value: &Value) -> ColumnType {
        match self {
            Self::Number => ColumnType::Double,
            Self::Integer => ColumnType::BigInt,
            Self::Boolean => ColumnType::Boolean,
            Self::Text => ColumnType::Text,
            Self::DateTime | Self::NgsiLdDate => ColumnType::Timestamp,
            Self::StructuredValue | Self::Array => ColumnType::Json,
            Self::Geometry(_) => ColumnType::Geometry,
            Self::Other => infer::column_type(value),
        }
    }
}

/// Returns the type of an attribute. If it has none, or is a `Property`, the value decides.
pub fn type_of(attribute: &Entity) -> AttributeType<'_> {
    let value = attribute.get("value").unwrap_or(&Value::Null);
    match attribute.get("type") {
        None => infer::from_value(value),
        Some(Value::String(name)) if name == "Property" => infer::from_property(value),
        Some(Value::String(name)) => AttributeType {
            value_type: ValueType::from_name(name).unwrap_or(ValueType::Other),
            name: Cow::Borrowed(name),
        },
        // Without a type only the value can name one.
        Some(Value::Null) => AttributeType {
            value_type: ValueType::Other,
            name: infer::from_value(value).name,
        },
        Some(odd) => AttributeType {
            value_type: ValueType::Other,
            name: Cow::Owned(python::repr(odd)),
        },
    }
}

/// Returns the value of an attribute: `value`; `object` of a `Relationship` without a value; the date of an NGSI-LD date.
pub fn value_of(attribute: &Entity) -> &Value {
    let value = attribute.get("value").unwrap_or(&Value::Null);
    match attribute.get("type").and_then(Value::as_str) {
        Some("Relationship") if is_empty(value) => attribute.get("object").unwrap_or(value),
        Some("Property") => infer::ngsi_ld_date(value).unwrap_or(value),
        _ => value,
    }
}

/// Whether an attribute of this NGSI type keeps a blank string: it does if its column is text or follows the value.
pub fn is_text_like(ngsi_type: Option<&str>) -> bool {
    match ngsi_type.and_then(ValueType::from_name) {
        None => true,
        Some(value_type) => value_type == ValueType::Text,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attribute(value: Value) -> Entity {
        match value {
            Value::Object(attribute) => attribute,
            other => panic!("an attribute is an object: {other}"),
        }
    }

    #[test]
    fn an_attribute_without_a_type_has_the_type_of_its_value() {
        for (value, name, column) in [
            (json!([1]), "Array", ColumnType::Json),
            (json!({"a": 1}), "StructuredValue", ColumnType::Json),
            (json!(true), "Boolean", ColumnType::Boolean),
            (json!(5), "Integer", ColumnType::BigInt),
            (json!(5.0), "Number", ColumnType::Double),
            (json!("2019-01-01"), "DateTime", ColumnType::Timestamp),
            (json!("monday"), "Text", ColumnType::Text),
            (json!(null), "Text", ColumnType::Text),
        ] {
            for untyped in [
                json!({"value": value}),
                json!({"type": "Property", "value": value}),
                json!({"type": null, "value": value}),
            ] {
                let untyped = attribute(untyped);
                let found = type_of(&untyped);
                assert_eq!(found.name, name, "{untyped:?}");
                assert_eq!(
                    found.value_type.column_type(value_of(&untyped)),
                    column,
                    "{untyped:?}"
                );
            }
        }
    }

    #[test]
    fn an_ngsi_ld_date_is_a_date_only_in_a_property() {
        let date = json!({"@type": "DateTime", "@value": "2019-01-01"});
        let property = attribute(json!({"type": "Property", "value": date}));
        assert_eq!(type_of(&property).value_type, ValueType::NgsiLdDate);
        assert_eq!(type_of(&property).name, "DateTime");
        assert_eq!(value_of(&property), "2019-01-01");

        let untyped = attribute(json!({"value": date}));
        assert_eq!(type_of(&untyped).value_type, ValueType::StructuredValue);
        assert_eq!(value_of(&untyped), &date);
        let dated = attribute(json!({"type": "DateTime", "value": date}));
        assert_eq!(
            type_of(&dated).value_type.sql_text(value_of(&dated)),
            Ok(None)
        );
    }

    #[test]
    fn a_relationship_without_a_value_has_its_object_as_value() {
        for (relationship, expected) in [
            (
                json!({"type": "Relationship", "object": "urn:1"}),
                json!("urn:1"),
            ),
            (
                json!({"type": "Relationship", "value": null, "object": "urn:1"}),
                json!("urn:1"),
            ),
            (
                json!({"type": "Relationship", "value": "", "object": ["a"]}),
                json!(["a"]),
            ),
            (
                json!({"type": "Relationship", "value": "v", "object": "urn:1"}),
                json!("v"),
            ),
            (json!({"type": "Relationship"}), json!(null)),
            (
                json!({"type": "Text", "value": null, "object": "urn:1"}),
                json!(null),
            ),
        ] {
            let relationship = attribute(relationship);
            assert_eq!(value_of(&relationship), &expected, "{relationship:?}");
        }
    }

    #[test]
    fn types_with_odd_names_are_recorded_as_given() {
        for (ngsi_type, name) in [
            (json!("Foo"), "Foo"),
            (json!("number"), "number"),
            (json!(""), ""),
            (json!("Relationship"), "Relationship"),
            (json!(5), "5"),
        ] {
            let odd = attribute(json!({"type": ngsi_type, "value": 1}));
            let found = type_of(&odd);
            assert_eq!((found.value_type, &*found.name), (ValueType::Other, name));
        }
    }

    #[test]
    fn text_and_unknown_types_are_text_like() {
        for name in ["Text", "Relationship", "Property", "Foo", "text", ""] {
            assert!(is_text_like(Some(name)), "{name}");
        }
        assert!(is_text_like(None));
        for name in [
            "Number",
            "Integer",
            "Boolean",
            "DateTime",
            "ISO8601",
            "StructuredValue",
            "Array",
            "geo:point",
            "geo:json",
            "GeoProperty",
        ] {
            assert!(!is_text_like(Some(name)), "{name}");
        }
    }
}
