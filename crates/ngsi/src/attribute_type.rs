//! The types of NGSI attributes, the columns they become, and how values are converted.
//!
//! An attribute's type decides two things: what its column is made as, and how values are put into text for it. Both
//! are taken from one attribute for all entities of a group, so a [`ValueType`] converts whatever it is given.

mod convert;
mod infer;

#[cfg(test)]
pub(crate) mod properties;

use std::borrow::Cow;

use serde_json::Value;

use crate::Entity;
use crate::geo::Format;
use crate::python;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// Column of type `text`.
    Text,
    /// Column of type `double precision`.
    Double,
    /// Column of type `bigint`.
    BigInt,
    /// Column of type `boolean`.
    Boolean,
    /// `timestamp with time zone`
    Timestamp,
    /// Column of type `jsonb`.
    Json,
    /// `geometry` of PostGIS; where that is missing, `text`.
    Geometry,
}

/// How the values of an attribute are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Attribute of type `Number`.
    Number,
    /// Attribute of type `Integer`.
    Integer,
    /// Attribute of type `Boolean`.
    Boolean,
    /// Attribute of type `Text`.
    Text,
    /// Attribute of type `DateTime` or `ISO8601`.
    DateTime,
    /// `Property` with a date of NGSI-LD, `{"@type": "DateTime", "@value": ".."}`.
    NgsiLdDate,
    /// Attribute of type `StructuredValue`.
    StructuredValue,
    /// Attribute of type `Array`.
    Array,
    /// Attribute of type `geo:..` or `GeoProperty`.
    Geometry(Format),
    /// `Relationship` and every name that is none of these: values are stored as they are.
    Other,
}

/// An attribute's type: how its values are stored, and the name that the metadata keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeType<'a> {
    /// How values are stored.
    pub value_type: ValueType,
    /// The type as given, or the one that was inferred.
    pub name: Cow<'a, str>,
}

impl ValueType {
    /// What a type's name stands for; `None` for names that are not known, and for `Property` and `Relationship`,
    /// whose values say it.
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

    /// What a column is made as for an attribute of this type that has this value.
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

/// The type of an attribute: its own, unless that is missing or `Property`; then the one that its value has.
pub fn type_of(attribute: &Entity) -> AttributeType<'_> {
    let value = attribute.get("value").unwrap_or(&Value::Null);
    match attribute.get("type") {
        None => infer::from_value(value),
        Some(Value::String(name)) if name == "Property" => infer::from_property(value),
        Some(Value::String(name)) => AttributeType {
            value_type: ValueType::from_name(name).unwrap_or(ValueType::Other),
            name: Cow::Borrowed(name),
        },
        // Nothing is given, so there is only the value to name it by.
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

/// What an attribute says: its `value`; of a `Relationship` without one its `object`; of a date of NGSI-LD the date.
pub fn value_of(attribute: &Entity) -> &Value {
    let value = attribute.get("value").unwrap_or(&Value::Null);
    match attribute.get("type").and_then(Value::as_str) {
        Some("Relationship") if is_empty(value) => attribute.get("object").unwrap_or(value),
        Some("Property") => infer::ngsi_ld_date(value).unwrap_or(value),
        _ => value,
    }
}

/// Whether an attribute of this type keeps a blank string: it does if blanks can be stored as they are, in a column of
/// text or of whatever the value is.
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
    fn an_attribute_without_a_type_is_of_the_type_its_value_has() {
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
    fn a_date_of_ngsi_ld_is_one_in_a_property_only() {
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
    fn a_relationship_says_its_object_if_it_has_no_value() {
        for (relationship, said) in [
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
            assert_eq!(value_of(&relationship), &said, "{relationship:?}");
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
    fn text_like_are_text_and_the_names_that_are_not_known() {
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
