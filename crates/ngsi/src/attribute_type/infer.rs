//! Infers types from values.

use std::borrow::Cow;

use serde_json::Value;

use super::{AttributeType, ColumnType, ValueType};
use crate::python::is_integer;
use crate::time::is_iso8601;

/// Returns the type of an attribute without a type.
pub(super) fn from_value(value: &Value) -> AttributeType<'static> {
    let (value_type, name) = match value {
        Value::Array(_) => (ValueType::Array, "Array"),
        Value::Object(_) => (ValueType::StructuredValue, "StructuredValue"),
        Value::Bool(_) => (ValueType::Boolean, "Boolean"),
        Value::Number(number) if is_integer(number) => (ValueType::Integer, "Integer"),
        Value::Number(_) => (ValueType::Number, "Number"),
        Value::String(text) if is_iso8601(text) => (ValueType::DateTime, "DateTime"),
        Value::String(_) | Value::Null => (ValueType::Text, "Text"),
    };
    AttributeType {
        value_type,
        name: Cow::Borrowed(name),
    }
}

/// Returns the type of a `Property`, whose value may also be an NGSI-LD date.
pub(super) fn from_property(value: &Value) -> AttributeType<'static> {
    if ngsi_ld_date(value).is_none() {
        return from_value(value);
    }
    AttributeType {
        value_type: ValueType::NgsiLdDate,
        name: Cow::Borrowed("DateTime"),
    }
}

/// Returns the date in `{"@type": "DateTime", "@value": ".."}`, null if `@value` is missing; `None` for other values.
pub(super) fn ngsi_ld_date(value: &Value) -> Option<&Value> {
    let members = value.as_object()?;
    let is_date = members.get("@type").and_then(Value::as_str) == Some("DateTime");
    is_date.then(|| members.get("@value").unwrap_or(&Value::Null))
}

/// Returns the type of a new column for a value of an unknown type.
pub(super) fn column_type(value: &Value) -> ColumnType {
    match value {
        Value::Array(_) | Value::Object(_) => ColumnType::Json,
        Value::Bool(_) => ColumnType::Boolean,
        Value::Number(number) if is_integer(number) => ColumnType::BigInt,
        Value::Number(_) => ColumnType::Double,
        Value::String(text) if is_iso8601(text) => ColumnType::Timestamp,
        Value::String(_) | Value::Null => ColumnType::Text,
    }
}
