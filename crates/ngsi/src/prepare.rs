//! Prepares entities for the queue: empty values, time index, location, and what is left out.

#[cfg(test)]
mod tests;
mod time_index;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::notification::NotificationError;
use crate::time::Time;
use crate::{Entity, attribute_type, geo, python};

/// Name of the member that holds an entity's time index.
pub const TIME_INDEX: &str = "time_index";

/// Prepares every entity of a notification that came at `arrived_at`. `time_index` is the attribute or metadata that
/// the header `Fiware-TimeIndex-Attribute` names.
///
/// # Errors
/// If an entity cannot be stored. The whole notification must be refused then.
pub fn prepare(
    mut entities: Vec<Entity>,
    time_index: Option<&str>,
    arrived_at: Timestamp,
) -> Result<Vec<Entity>, NotificationError> {
    for entity in &mut entities {
        prepare_entity(entity, time_index, arrived_at)?;
    }
    entities.retain(|entity| attributes(entity).any(|(_, it)| has_value(it)));
    for entity in &mut entities {
        entity.retain(|name, member| !is_attribute(name) || is_kept(member));
    }
    Ok(entities)
}

/// Returns the members of an entity that are attributes, in any representation.
fn attributes(entity: &Entity) -> impl Iterator<Item = (&str, &Value)> {
    let members = entity.iter().map(|(name, it)| (name.as_str(), it));
    members.filter(|(name, _)| is_attribute(name))
}

fn is_attribute(name: &str) -> bool {
    !matches!(name, "id" | "type" | "@context" | TIME_INDEX)
}

fn prepare_entity(
    entity: &mut Entity,
    time_index: Option<&str>,
    arrived_at: Timestamp,
) -> Result<(), NotificationError> {
    reject_bare_values(entity)?;
    for (name, member) in entity.iter_mut() {
        if let Value::Object(attribute) = member
            && is_attribute(name)
            && !has_usable_value(attribute)
        {
            attribute.insert("value".to_owned(), Value::Null);
        }
    }
    let time = time_index::find(entity, time_index)?;
    let time = time.unwrap_or_else(|| Time::from_arrival(arrived_at));
    entity.insert(TIME_INDEX.to_owned(), time.to_string().into());
    geo::normalise(entity)
}

/// Refuses bare values of which nothing would be stored, not even an empty column, instead of losing them silently. The
/// simplified representation of attributes is not supported.
fn reject_bare_values(entity: &Entity) -> Result<(), NotificationError> {
    for (name, member) in attributes(entity) {
        let form = match member {
            Value::Null => "null",
            Value::Bool(_) => "a bare boolean",
            Value::Number(_) => "a bare number",
            Value::String(text) if text.is_empty() => "an empty string",
            _ if name == "location" && is_bare(member) => "a bare location",
            _ => continue,
        };
        let what = format!("is {form}: send an object with its type and its value");
        return Err(attribute_error(entity, name, &what));
    }
    Ok(())
}

/// Whether a member is a value without an attribute around it. An object is one if it has neither `type` nor `value`,
/// or looks like GeoJSON.
fn is_bare(member: &Value) -> bool {
    let Value::Object(object) = member else {
        return true;
    };
    let has = |name| object.contains_key(name);
    !has("value") && (!has("type") || has("coordinates") || has("geometries"))
}

/// Returns the error for an entity that is refused because of one of its attributes.
fn attribute_error(entity: &Entity, name: &str, what: &str) -> NotificationError {
    let id = python::repr(entity.get("id").unwrap_or(&Value::Null));
    let name = python::repr(&name.into());
    NotificationError::bad_request(format!("attribute {name} of entity {id} {what}"))
}

/// Whether the attribute has a value that can be stored. A blank string counts for text-like types.
fn has_usable_value(attribute: &Map<String, Value>) -> bool {
    match attribute.get("value") {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) if text.trim().is_empty() => {
            attribute_type::is_text_like(attribute.get("type").and_then(Value::as_str))
        }
        Some(_) => true,
    }
}

/// Whether this member is reason enough to store the entity: any integer or boolean, including zero and false; other
/// values only if they are truthy in Python.
fn has_value(member: &Value) -> bool {
    let Value::Object(attribute) = member else {
        return python::is_truthy(member);
    };
    match attribute.get("value") {
        Some(Value::Bool(_)) => true,
        Some(Value::Number(number)) if python::is_integer(number) => true,
        Some(value) => python::is_truthy(value),
        None => false,
    }
}

/// Whether a member is an attribute with a type or a value.
fn is_kept(member: &Value) -> bool {
    let Value::Object(attribute) = member else {
        return false;
    };
    ["type", "value"]
        .iter()
        .any(|name| attribute.get(*name).is_some_and(python::is_truthy))
}
