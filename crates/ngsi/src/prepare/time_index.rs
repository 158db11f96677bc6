//! Which of an entity's many dates becomes its time index.

use serde_json::Value;

use super::{attribute_error, attributes};
use crate::Entity;
use crate::notification::NotificationError;
use crate::time::Time;

/// A source in an entity where a date may be.
#[derive(Clone, Copy)]
enum DateSource<'a> {
    /// The value of the attribute of this name.
    Attribute(&'a str),
    /// The metadata of this name in any attribute.
    Metadata(&'a str),
    /// The direct member of this name in any attribute, as NGSI-LD has it.
    AttributeMember(&'a str),
    /// The member of this name of the entity itself.
    EntityMember(&'a str),
}

/// The places that are looked at, in this order, after those that a header names.
const DATE_SOURCES: [DateSource<'static>; 10] = [
    DateSource::Attribute("TimeInstant"),
    DateSource::Metadata("TimeInstant"),
    DateSource::Attribute("timestamp"),
    DateSource::Metadata("timestamp"),
    DateSource::AttributeMember("observedAt"),
    DateSource::AttributeMember("modifiedAt"),
    DateSource::EntityMember("observedAt"),
    DateSource::EntityMember("modifiedAt"),
    DateSource::Attribute("dateModified"),
    DateSource::Metadata("dateModified"),
];

/// The time of the first source that has a date; `None` if there is no such source. What comes after it is not looked at.
pub(super) fn find(
    entity: &Entity,
    header: Option<&str>,
) -> Result<Option<Time>, NotificationError> {
    let header = header.filter(|name| !name.is_empty());
    let header = header.map(|name| [DateSource::Attribute(name), DateSource::Metadata(name)]);
    for source in header.into_iter().flatten().chain(DATE_SOURCES) {
        let time = latest(entity, source)?;
        if time.is_some() {
            return Ok(time);
        }
    }
    Ok(None)
}

/// The latest of the dates in one source of an entity. What is no date, though a text, is passed over.
fn latest(entity: &Entity, source: DateSource<'_>) -> Result<Option<Time>, NotificationError> {
    let mut latest: Option<Time> = None;
    for (attribute, candidate) in candidates(entity, source) {
        let time = match date(candidate) {
            Ok(time) => time,
            Err(NotADate) => {
                let what = "has no date where one is looked for: send a text or a date object";
                return Err(attribute_error(entity, attribute, what));
            }
        };
        if let Some(time) = time
            && latest.is_none_or(|latest| latest.since_epoch() < time.since_epoch())
        {
            latest = Some(time);
        }
    }
    Ok(latest)
}

/// What is in one source of an entity, with the names of the attributes.
fn candidates<'e>(
    entity: &'e Entity,
    source: DateSource<'_>,
) -> impl Iterator<Item = (&'e str, &'e Value)> {
    attributes(entity).filter_map(move |(attribute, member)| {
        let found = match source {
            DateSource::Attribute(name) if attribute == name => member.as_object()?.get("value")?,
            DateSource::EntityMember(name) if attribute == name => member,
            DateSource::Attribute(_) | DateSource::EntityMember(_) => return None,
            DateSource::Metadata(name) => {
                let metadata = member.as_object()?.get("metadata")?.as_object()?;
                metadata.get(name)?.as_object()?.get("value")?
            }
            DateSource::AttributeMember(name) => member.as_object()?.get(name)?,
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
        Value::String(text) => Ok(Time::parse(text)),
        _ => Err(NotADate),
    }
}
