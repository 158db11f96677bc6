//! What happens to entities before they are queued: empty values, time index, place, and what is left out.

#[cfg(test)]
mod tests;
mod time_index;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::notification::NotificationError;
use crate::time::Time;
use crate::{Entity, attribute_type, geo, python};

/// The member under which an entity's time index is stored.
pub const TIME_INDEX: &str = "time_index";

/// Settles every entity of a notification that came at `arrived_at`. `time_index` is the attribute or metadata that the
/// header `Fiware-TimeIndex-Attribute` names.
///
/// # Errors
/// If an entity has a form that cannot be stored; nothing of the notification may then be queued.
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

/// The members of an entity that are attributes, in whatever form they came.
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

/// Attributes in the simplified representation are not supported. Those of which nothing would be stored, not even an
/// empty column, are refused rather than lost in silence.
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

/// Whether a member is a value without an attribute around it. An object is one if it says neither type nor value, or
/// if it has the shape of GeoJSON.
fn is_bare(member: &Value) -> bool {
    let Value::Object(object) = member else {
        return true;
    };
    let has = |name| object.contains_key(name);
    !has("value") && (!has("type") || has("coordinates") || has("geometries"))
}

/// The refusal of an entity because of one of its attributes.
fn attribute_error(entity: &Entity, name: &str, what: &str) -> NotificationError {
    let id = python::repr(entity.get("id").unwrap_or(&Value::Null));
    let name = python::repr(&name.into());
    NotificationError::bad_request(format!("attribute {name} of entity {id} {what}"))
}

/// Whether the attribute has a value that can be stored. A blank text is one for types that are like texts.
fn has_usable_value(attribute: &Map<String, Value>) -> bool {
    match attribute.get("value") {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) if text.trim().is_empty() => {
            attribute_type::is_text_like(attribute.get("type").and_then(Value::as_str))
        }
        Some(_) => true,
    }
}

/// Whether an entity is worth a row because of this member: integers and booleans are values, zero and false too;
/// other things only if there is something in them.
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

/// Whether a member is an attribute of which at least the type is known, or a value.
fn is_kept(member: &Value) -> bool {
    let Value::Object(attribute) = member else {
        return false;
    };
    ["type", "value"]
        .iter()
        .any(|name| attribute.get(*name).is_some_and(python::is_truthy))
}
