//! Generates arbitrary JSON and entities for property tests.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Number, Value};

use crate::Entity;

/// Generates any document, a few levels deep, with numbers of any size.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number(),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((name(), inner), 0..4).prop_map(object),
        ]
    })
}

/// Generates an object with `id`, `type` and members that may be attributes.
pub(crate) fn entity() -> impl Strategy<Value = Entity> {
    let members = vec((name(), prop_oneof![1 => value(), 6 => attribute()]), 0..6);
    (text(), text(), members).prop_map(|(id, kind, members)| {
        let mut entity = Entity::new();
        entity.insert("id".to_owned(), id.into());
        entity.insert("type".to_owned(), kind.into());
        entity.extend(
            members
                .into_iter()
                .filter(|(name, _)| name != "id" && name != "type"),
        );
        entity
    })
}

/// Generates an object with some of the members of an attribute.
pub(crate) fn attribute() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![
        "Text|Number|Integer|Property|Relationship|DateTime|geo:(point|line|box|json)|Foo|"
            .prop_map(Value::from),
        value(),
    ];
    let kind = proptest::option::of(kind);
    let metadata = vec((name(), member()), 0..3).prop_map(object);
    let more = vec((name(), value()), 0..2);
    let value = proptest::option::weighted(0.9, value());
    (kind, value, proptest::option::of(metadata), more).prop_map(|(kind, value, metadata, more)| {
        let named = [("type", kind), ("value", value), ("metadata", metadata)];
        let named = named
            .into_iter()
            .filter_map(|(name, member)| Some((name.to_owned(), member?)));
        object(named.chain(more))
    })
}

fn member() -> impl Strategy<Value = Value> {
    value().prop_map(|value| object([("value".to_owned(), value)]))
}

fn object(members: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(members.into_iter().collect::<Map<_, _>>())
}

fn number() -> impl Strategy<Value = Value> {
    "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?(e[-+][0-9]{1,3})?"
        .prop_map(|text| Value::Number(text.parse::<Number>().expect("a number")))
}

/// Generates strings, among them times and positions.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ '\"\\\\a-c]{0,4}",
        "20[0-9]{2}-0[1-9]-1[0-9]T1[0-9]:00:00(\\.[0-9]{1,6})?(Z|\\+02:00)?",
        "-?[0-9]{1,2}\\.[0-9], ?-?[0-9]{1,2}",
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => "id|type|value|metadata|object|@value|@type|@context|coordinates",
        2 => "TimeInstant|timestamp|observedAt|modifiedAt|dateModified|time_index|location|location_centroid",
        2 => "[a-cA-C]",
        1 => any::<String>(),
    ]
}
