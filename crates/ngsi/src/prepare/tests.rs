use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::Value;

use super::{TIME_INDEX, prepare};
use crate::any_json;
use crate::notification::parse;
use crate::task::{Origin, Task};
use crate::time::Time;
use crate::{Entity, json, python};

const ARRIVED: &str = "2021-05-14T15:57:11.848980";

fn arrived() -> Timestamp {
    format!("{ARRIVED}Z").parse().expect("a time")
}

/// Returns entities that each have these members besides `id` and `type`.
fn entities(members: &[&str]) -> Vec<Entity> {
    let entity = |members: &&str| {
        let comma = if members.is_empty() { "" } else { ", " };
        let text = format!(r#"{{"id": "e1", "type": "T"{comma}{members}}}"#);
        match json::parse(text.as_bytes()).expect("valid JSON") {
            Value::Object(entity) => entity,
            _ => unreachable!("it is an object"),
        }
    };
    members.iter().map(entity).collect()
}

fn prepared_with(header: Option<&str>, members: &str) -> Option<Entity> {
    let prepared = prepare(entities(&[members]), header, arrived()).expect("valid input");
    prepared.into_iter().next()
}

fn prepared(members: &str) -> Option<Entity> {
    prepared_with(None, members)
}

/// Returns the attributes that are left of an entity, as JSON; `None` if the whole entity is left out.
fn left(members: &str) -> Option<String> {
    let mut entity = prepared(members)?;
    entity.retain(|name, _| !matches!(name.as_str(), "id" | "type" | TIME_INDEX));
    Some(Value::Object(entity).to_string())
}

fn time(header: Option<&str>, members: &str) -> String {
    let members = format!("{members}, \"x\": {{\"type\": \"Number\", \"value\": 1}}");
    let entity = prepared_with(header, &members).expect("the entity has a value");
    entity[TIME_INDEX].as_str().expect("a text").to_owned()
}

fn refusal(members: &str) -> String {
    let refusal =
        prepare(entities(&["", members]), None, arrived()).expect_err("the input is invalid");
    assert_eq!(refusal.status, 400);
    refusal.detail
}

const X: &str = r#""x": {"type": "Number", "value": 1}"#;

#[test]
fn an_attribute_without_a_usable_value_becomes_null() {
    for (attribute, settled) in [
        (r#"{"type":"Number"}"#, r#"{"type":"Number","value":null}"#),
        (
            r#"{"value":null,"type":"Text"}"#,
            r#"{"value":null,"type":"Text"}"#,
        ),
        (
            r#"{"type":"Number","value":" \t"}"#,
            r#"{"type":"Number","value":null}"#,
        ),
        (
            r#"{"type":"DateTime","value":""}"#,
            r#"{"type":"DateTime","value":null}"#,
        ),
        (
            r#"{"type":"Text","value":""}"#,
            r#"{"type":"Text","value":""}"#,
        ),
        (
            r#"{"type":"Foo","value":" "}"#,
            r#"{"type":"Foo","value":" "}"#,
        ),
        (
            r#"{"type":"Relationship","object":"urn"}"#,
            r#"{"type":"Relationship","object":"urn","value":null}"#,
        ),
    ] {
        let expected = format!(r#"{{"k":{settled},"x":{{"type":"Number","value":1}}}}"#);
        assert_eq!(left(&format!("\"k\": {attribute}, {X}")), Some(expected));
    }
}

#[test]
fn an_entity_is_kept_if_it_has_an_integer_a_boolean_or_a_truthy_value() {
    for value in [
        "0",
        "-0",
        "1",
        "true",
        "false",
        "0.5",
        "\" \"",
        "\"a\"",
        "[0]",
        "{\"a\":0}",
    ] {
        let attribute = format!("\"x\": {{\"type\": \"Foo\", \"value\": {value}}}");
        assert!(prepared(&attribute).is_some(), "{value}");
    }
    for value in ["0.0", "0e1", "-0.00", "\"\"", "[]", "{}", "null"] {
        let attribute = format!("\"x\": {{\"type\": \"Foo\", \"value\": {value}}}");
        assert!(prepared(&attribute).is_none(), "{value}");
    }
    assert_eq!(prepared(""), None);
    assert_eq!(prepared(r#""@context": ["a"]"#), None);
    assert_eq!(prepared(r#""time_index": "2020""#), None);
    assert_eq!(
        prepared(r#""r": {"type": "Relationship", "object": "urn:a"}"#),
        None
    );
    let both = prepare(entities(&["", X]), None, arrived()).expect("valid input");
    assert_eq!(both.len(), 1);
}

#[test]
fn an_attribute_without_type_and_value_is_dropped() {
    for attribute in [
        "{}",
        r#"{"value": null}"#,
        r#"{"value": 0}"#,
        r#"{"value": 0.0}"#,
        r#"{"value": false}"#,
        r#"{"value": ""}"#,
        r#"{"value": []}"#,
        r#"{"type": "", "value": 0}"#,
        r#"{"type": null, "metadata": {"a": {"value": 1}}}"#,
    ] {
        let expected = Some(r#"{"x":{"type":"Number","value":1}}"#.to_owned());
        assert_eq!(left(&format!("\"k\": {attribute}, {X}")), expected);
    }
    let expected = r#"{"k":{"type":"Number","value":null},"y":{"value":23.3}}"#;
    let members = r#""k": {"type": "Number"}, "y": {"value": 23.3}"#;
    assert_eq!(left(members), Some(expected.to_owned()));
    // The entity still becomes a row, with the fixed columns only.
    assert_eq!(left(r#""x": {"value": 0}"#), Some("{}".to_owned()));
}

#[test]
fn a_bare_string_list_or_object_is_dropped_but_a_string_or_list_still_makes_a_row() {
    for bare in ["\"text\"", "\" \"", "[1]"] {
        let alone = left(&format!("\"k\": {bare}"));
        assert_eq!(alone, Some("{}".to_owned()), "{bare}");
    }
    for bare in ["[]", "{\"a\": 1}", "{}"] {
        assert_eq!(left(&format!("\"k\": {bare}")), None, "{bare}");
        let expected = Some(r#"{"x":{"type":"Number","value":1}}"#.to_owned());
        assert_eq!(left(&format!("\"k\": {bare}, {X}")), expected, "{bare}");
    }
}

#[test]
fn a_bare_scalar_is_refused_with_the_names_of_attribute_and_entity() {
    for (bare, form) in [
        ("5", "a bare number"),
        ("0.5", "a bare number"),
        ("true", "a bare boolean"),
        ("null", "null"),
        ("\"\"", "an empty string"),
    ] {
        assert_eq!(
            refusal(&format!("{X}, \"k\": {bare}")),
            format!(
                "attribute 'k' of entity 'e1' is {form}: send an object with its type and its value"
            )
        );
    }
}

#[test]
fn a_bare_location_is_refused_but_one_that_is_no_geometry_is_not() {
    for bare in [
        "\"1,2\"",
        "[1, 2]",
        "5",
        "{}",
        r#"{"lat": 1}"#,
        r#"{"type": "Point", "coordinates": [1, 2]}"#,
    ] {
        let detail = refusal(&format!("{X}, \"location\": {bare}"));
        assert!(
            detail.starts_with("attribute 'location' of entity 'e1' is "),
            "{detail}"
        );
    }
    let expected = r#"{"location":{"type":"Text","value":"home"}}"#;
    let members = r#""location": {"type": "Text", "value": "home"}"#;
    assert_eq!(left(members), Some(expected.to_owned()));
    let expected = r#"{"location":{"type":"Relationship","object":"urn:a","value":null},"x":{"type":"Number","value":1}}"#;
    let members = format!(r#""location": {{"type": "Relationship", "object": "urn:a"}}, {X}"#);
    assert_eq!(left(&members), Some(expected.to_owned()));
}

#[test]
fn the_context_is_not_an_attribute() {
    for context in ["\"http://x\"", "[\"http://x\"]", "5", "{\"value\":1}"] {
        let expected = format!(r#"{{"@context":{context},"x":{{"type":"Number","value":1}}}}"#);
        assert_eq!(
            left(&format!("\"@context\": {context}, {X}")),
            Some(expected)
        );
    }
}

#[test]
fn members_keep_their_order_and_the_time_index_replaces_an_existing_member() {
    let names = |members: &str| -> Vec<String> {
        let entity = prepared(members).expect("the entity has a value");
        entity.keys().cloned().collect()
    };
    let members = r#""z": {"value": 1}, "y": {}, "a": {"value": 1}, "k": "v", "b": {"value": 1}"#;
    assert_eq!(names(members), ["id", "type", "z", "a", "b", "time_index"]);
    for theirs in ["\"2001-01-01\"", "5", "null", "{\"value\": 5}"] {
        assert_eq!(time(None, &format!("\"time_index\": {theirs}")), ARRIVED);
    }
}

#[test]
fn the_time_index_is_the_first_date_in_the_order_of_sources() {
    // Each source has a different year; without the first source the next one is found.
    let places = [
        r#""ts": {"type": "Text", "value": "2001"}"#,
        r#""a": {"value": 1, "metadata": {"ts": {"value": "2002"}}}"#,
        r#""TimeInstant": {"type": "DateTime", "value": "2003"}"#,
        r#""b": {"value": 1, "metadata": {"TimeInstant": {"value": "2004"}}}"#,
        r#""timestamp": {"value": "2005"}"#,
        r#""c": {"value": 1, "metadata": {"timestamp": {"value": "2006"}}}"#,
        r#""d": {"value": 1, "observedAt": "2007"}"#,
        r#""e": {"value": 1, "modifiedAt": "2008"}"#,
        r#""observedAt": "2009""#,
        r#""modifiedAt": "2010""#,
        r#""dateModified": {"value": "2011"}"#,
        r#""f": {"value": 1, "metadata": {"dateModified": {"value": "2012"}}}"#,
    ];
    for first in 0..places.len() {
        let mut members = places[first..].to_vec();
        members.reverse();
        let expected = format!("{}-01-01T00:00:00", 2001 + first);
        assert_eq!(time(Some("ts"), &members.join(", ")), expected);
        // Without the header its two sources are not searched.
        let expected = format!("{}-01-01T00:00:00", 2001 + first.max(2));
        assert_eq!(time(None, &members.join(", ")), expected);
        assert_eq!(time(Some(""), &members.join(", ")), expected);
    }
    assert_eq!(time(Some("ts"), r#""TS": {"value": "2001"}"#), ARRIVED);
    assert_eq!(time(Some("id"), r#""a": {"value": 1}"#), ARRIVED);
}

#[test]
fn of_several_metadata_the_latest_time_counts_and_times_without_a_zone_are_utc() {
    let members = r#"
        "a": {"value": 1, "metadata": {"dateModified": {"value": "2001-06-01T12:00:00+02:00"}}},
        "b": {"value": 1, "metadata": {"dateModified": {"value": "2001-06-01T11:00:00"}}},
        "c": {"value": 1, "metadata": {"dateModified": {"value": "2001-06-01T10:59:59Z"}}},
        "d": {"value": 1, "metadata": {"dateModified": {"value": "nonsense"}}},
        "e": {"value": 1, "metadata": {"dateModified": "2002-01-01", "x": null}},
        "f": {"value": 1, "metadata": "2003-01-01"}"#;
    assert_eq!(time(None, members), "2001-06-01T11:00:00");
}

#[test]
fn a_value_that_is_no_date_is_skipped_for_the_next_source() {
    for odd in [
        r#"{"type": "DateTime", "value": "nonsense"}"#,
        r#"{"type": "Text", "value": ""}"#,
        r#"{"type": "DateTime"}"#,
        r#"{"value": {"@type": "DateTime", "@value": "nonsense"}}"#,
        r#"{"value": {"@value": null}}"#,
        r#""2001-01-01""#,
        r#"["2001-01-01"]"#,
    ] {
        let members = format!("\"TimeInstant\": {odd}, \"timestamp\": {{\"value\": \"2005\"}}");
        assert_eq!(time(None, &members), "2005-01-01T00:00:00", "{odd}");
        assert_eq!(time(None, &format!("\"TimeInstant\": {odd}")), ARRIVED);
    }
}

#[test]
fn date_objects_and_english_dates_are_read() {
    for (value, written) in [
        (
            r#"{"@type": "DateTime", "@value": "2020-01-02T03:04:05.5Z"}"#,
            "2020-01-02T03:04:05.500000+00:00",
        ),
        (
            "\"Thu, 02 Jan 2020 03:04:05 GMT\"",
            "2020-01-02T03:04:05+00:00",
        ),
        ("\"01/02/2020 3:04 PM\"", "2020-01-02T15:04:00"),
    ] {
        let members = format!("\"TimeInstant\": {{\"value\": {value}}}");
        assert_eq!(time(None, &members), written);
    }
    let members = r#""observedAt": {"@type": "DateTime", "@value": "2009-01-01"}"#;
    assert_eq!(time(None, members), "2009-01-01T00:00:00");
}

#[test]
fn a_source_that_is_reached_and_has_neither_string_nor_date_object_is_refused() {
    for members in [
        r#""TimeInstant": {"value": 5}"#,
        r#""TimeInstant": {"value": ["2020"]}"#,
        r#""TimeInstant": {"value": {"a": 1}}"#,
        r#""TimeInstant": {"value": {"@value": 5}}"#,
        r#""TimeInstant": {"value": true}"#,
        r#""a": {"value": 1, "metadata": {"timestamp": {"value": 5}}}"#,
        r#""a": {"value": 1, "observedAt": 5}"#,
        r#""observedAt": {"type": "DateTime", "value": "2020"}"#,
        r#""modifiedAt": {"value": "2020"}"#,
        r#""observedAt": ["2020"]"#,
    ] {
        let name = members.split('"').nth(1).expect("a name");
        let detail = refusal(&format!("{X}, {members}"));
        let expected = format!(
            "attribute '{name}' of entity 'e1' has no date where one is expected: send a string or a date object"
        );
        assert_eq!(detail, expected);
        // With a date in an earlier source it is never reached.
        let members = format!("\"ts\": {{\"value\": \"2001\"}}, {members}");
        assert_eq!(time(Some("ts"), &members), "2001-01-01T00:00:00");
    }
}

#[test]
fn the_deepest_accepted_entities_make_tasks_that_can_be_read() {
    let body = |levels: usize| {
        let nested = "[".repeat(levels) + &"]".repeat(levels);
        let members = format!(
            r#""x": {{"type": "Text", "value": {nested}}}, "location": {{"type": "geo:json", "value": {{"type": "P", "a": {nested}}}}}"#
        );
        format!(r#"{{"data": [{{"id": "e1", "type": "T", {members}}}]}}"#)
    };
    let is_taken = |levels: usize| match parse(Some("application/json"), body(levels).as_bytes()) {
        Err(_) => false,
        Ok(entities) => {
            let payload = prepare(entities, None, arrived()).expect("valid input");
            let task = Task {
                origin: Origin::default(),
                payload,
            };
            let again = Task::from_json(&task.to_json()).expect("a task");
            again.payload == task.payload
        }
    };
    assert!(is_taken(122) && !is_taken(123));
}

/// Whether nothing of the entity is left out, dates included. Bare values and attributes without type and value are
/// left out, and a location keeps only its type and value.
fn is_kept_whole(entity: &Entity) -> bool {
    super::attributes(entity).all(|(name, member)| {
        let has_type = member.get("type").is_some_and(python::is_truthy);
        let is_plain =
            |attribute: &Entity| attribute.keys().all(|it| it == "type" || it == "value");
        has_type && (!name.starts_with("location") || member.as_object().is_some_and(is_plain))
    })
}

proptest! {
    #[test]
    fn any_entities_are_accepted_or_refused(
        entities in proptest::collection::vec(any_json::entity(), 0..3),
        header in proptest::option::of("a|TimeInstant|time_index||id|b"),
    ) {
        let count = entities.len();
        match prepare(entities, header.as_deref(), arrived()) {
            Err(refusal) => prop_assert!(refusal.status == 400 && refusal.detail.contains(" of entity ")),
            Ok(prepared) => {
                prop_assert!(prepared.len() <= count);
                for entity in prepared {
                    let time = entity[TIME_INDEX].as_str().expect("a text");
                    prop_assert_eq!(Time::parse(time).expect("a time").to_string(), time);
                    prop_assert!(entity["id"].is_string() && entity["type"].is_string());
                    for (_, attribute) in super::attributes(&entity) {
                        let attribute = attribute.as_object().expect("an object");
                        prop_assert!(attribute.contains_key("value"));
                    }
                }
            }
        }
    }

    #[test]
    fn preparing_twice_changes_nothing(
        entities in proptest::collection::vec(any_json::entity(), 0..3),
        header in proptest::option::of("a|TimeInstant|b"),
    ) {
        let entities: Vec<Entity> = entities.into_iter().filter(is_kept_whole).collect();
        if let Ok(once) = prepare(entities, header.as_deref(), arrived()) {
            let twice = prepare(once.clone(), header.as_deref(), arrived());
            prop_assert_eq!(twice, Ok(once));
        }
    }
}
