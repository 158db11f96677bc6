//! Which of an entity's many dates becomes its time index.

use serde_json::Value;

use super::{attributes, refused};
use crate::Entity;
use crate::notification::Refusal;
use crate::time::Time;

/// A place in an entity where a date may be.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// The value of the attribute of this name.
    Attribute(&'a str),
    /// The metadata of this name in any attribute.
    Metadata(&'a str),
    /// The direct member of this name in any attribute, as NGSI-LD has it.
    Member(&'a str),
    /// The member of this name of the entity itself.
    Bare(&'a str),
}

/// The places that are looked at, in this order, after those that a header names.
const PLACES: [Place<'static>; 10] = [
    Place::Attribute("TimeInstant"),
    Place::Metadata("TimeInstant"),
    Place::Attribute("timestamp"),
    Place::Metadata("timestamp"),
    Place::Member("observedAt"),
    Place::Member("modifiedAt"),
    Place::Bare("observedAt"),
    Place::Bare("modifiedAt"),
    Place::Attribute("dateModified"),
    Place::Metadata("dateModified"),
];

/// The time of the first place that has a date; `None` if there is no such place. What comes after it is not looked at.
pub(super) fn choose(entity: &Entity, named: Option<&str>) -> Result<Option<Time>, Refusal> {
    let named = named.filter(|name| !name.is_empty());
    let named = named.map(|name| [Place::Attribute(name), Place::Metadata(name)]);
    for place in named.into_iter().flatten().chain(PLACES) {
        let time = latest(entity, place)?;
        if time.is_some() {
            return Ok(time);
        }
    }
    Ok(None)
}

/// The latest of the dates in one place of an entity. What is no date, though a text, is passed over.
fn latest(entity: &Entity, place: Place<'_>) -> Result<Option<Time>, Refusal> {
    let mut latest: Option<Time> = None;
    for (attribute, candidate) in candidates(entity, place) {
        let time = match date(candidate) {
            Ok(time) => time,
            Err(NotADate) => {
                let what = "has no date where one is looked for: send a text or a date object";
                return Err(refused(entity, attribute, what));
            }
        };
        if let Some(time) = time
            && latest.is_none_or(|latest| latest.moment() < time.moment())
        {
            latest = Some(time);
        }
    }
    Ok(latest)
}

/// What is in one place of an entity, with the names of the attributes.
fn candidates<'e>(
    entity: &'e Entity,
    place: Place<'_>,
) -> impl Iterator<Item = (&'e str, &'e Value)> {
    attributes(entity).filter_map(move |(attribute, member)| {
        let found = match place {
            Place::Attribute(name) if attribute == name => member.as_object()?.get("value")?,
            Place::Bare(name) if attribute == name => member,
            Place::Attribute(_) | Place::Bare(_) => return None,
            Place::Metadata(name) => {
                let metadata = member.as_object()?.get("metadata")?.as_object()?;
                metadata.get(name)?.as_object()?.get("value")?
            }
            Place::Member(name) => member.as_object()?.get(name)?,
        };
        Some((attribute, found))
    })
}

/// Something that is neither a text nor a date object.
struct NotADate;

/// Reads a text, or the text of an NGSI-LD date object. There is none in a null or in a text of another sort.
fn date(value: &Value) -> Result<Option<Time>, NotADate> {
    let value = match value {
        Value::Object(object) => object.get("@value").ok_or(NotADate)?,
        other => other,
    };
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Time::read(text)),
        _ => Err(NotADate),
    }
}
