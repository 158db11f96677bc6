//! Finds the date of an entity that becomes its time index.

use serde_json::Value;

use super::{attribute_error, attributes};
use crate::Entity;
use crate::notification::NotificationError;
use crate::time::Time;

/// A part of an entity that may hold a date.
#[derive(Clone, Copy)]
enum DateSource<'a> {
    /// The value of the attribute with this name.
    Attribute(&'a str),
    /// The metadata with this name in any attribute.
    Metadata(&'a str),
    /// The direct member with this name in any attribute, as in NGSI-LD.
    AttributeMember(&'a str),
    /// The member with this name of the entity itself.
    EntityMember(&'a str),
}

/// The sources in the order in which they are searched, after those that the header names.
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

/// Returns the time from the first source that has a date, without looking at later ones; `None` if no source has one.
/// `header` is the value of `Fiware-TimeIndex-Attribute`.
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

/// Returns the latest date in one source. Strings that are not dates are skipped.
fn latest(entity: &Entity, source: DateSource<'_>) -> Result<Option<Time>, NotificationError> {
    let mut latest: Option<Time> = None;
    for (attribute, candidate) in candidates(entity, source) {
        let time = match date(candidate) {
            Ok(time) => time,
            Err(NotADate) => {
                let what = "has no date where one is expected: send a string or a date object";
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

/// Returns the values in one source, with the names of the attributes that hold them.
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

/// The value is neither a string nor a date object.
struct NotADate;

/// Parses a string, or the string of an NGSI-LD date object. `None` if it is null or not a date.
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
