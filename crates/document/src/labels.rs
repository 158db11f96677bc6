//! Labels and priorities.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use ganger_types::{LabelKey, LabelValue, Priority};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::names::{Name, Named, read};

/// A whole priority; smaller runs first.
#[derive(Clone, Copy, Debug)]
pub struct Rank(pub Priority);

impl<'de> Deserialize<'de> for Rank {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        Priority::whole(number).map(Self).ok_or_else(|| {
            let most = Priority::WHOLE_MAX;
            D::Error::custom(format_args!(
                "priority {number} is not within -{most} to {most}"
            ))
        })
    }
}

impl PartialSchema for Rank {
    fn schema() -> RefOr<Schema> {
        let about = "Smaller runs first; 0 by default.";
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .description(Some(about))
            .into()
    }
}

impl ToSchema for Rank {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Priority")
    }
}

/// Labels: an object of strings. A duplicate key is refused.
#[derive(Clone, Debug, Default)]
pub struct Labels(pub Vec<(LabelKey, LabelValue)>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = deserializer.deserialize_map(Pairs("an object of strings", PhantomData))?;
        let pairs: Vec<(LabelKey, Named<LabelValue>)> = pairs;
        Ok(Self(
            pairs
                .into_iter()
                .map(|(key, value)| (key, value.0))
                .collect(),
        ))
    }
}

/// Changes of labels, as in a merge patch (RFC 7396): a string sets a label, null removes it.
#[derive(Clone, Debug, Default)]
pub struct LabelChanges {
    /// Labels to add or replace, by key.
    pub set: Vec<(LabelKey, LabelValue)>,
    /// Keys of the labels to remove.
    pub removed: Vec<LabelKey>,
}

impl<'de> Deserialize<'de> for LabelChanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs: Vec<(LabelKey, Option<Named<LabelValue>>)> =
            deserializer.deserialize_map(Pairs("an object of strings and nulls", PhantomData))?;
        let mut changes = Self::default();
        for (key, value) in pairs {
            match value {
                Some(Named(value)) => changes.set.push((key, value)),
                None => changes.removed.push(key),
            }
        }
        Ok(changes)
    }
}

/// Parses the pairs of an object, with its name for errors. A duplicate key is refused.
struct Pairs<K, V>(&'static str, PhantomData<(K, V)>);

impl<'de, K: Name + Ord + Clone, V: Deserialize<'de>> Visitor<'de> for Pairs<K, V> {
    type Value = Vec<(K, V)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs: Vec<(K, V)> = Vec::new();
        let mut keys = BTreeSet::new();
        while let Some((key, value)) = map.next_entry::<String, V>()? {
            let name = K::from_bytes(&read(key.as_bytes())).map_err(A::Error::custom)?;
            if !keys.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("duplicate field `{key}`")));
            }
            pairs.push((name, value));
        }
        Ok(pairs)
    }
}

impl PartialSchema for LabelChanges {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
            .build();
        ObjectBuilder::new()
            .additional_properties(Some(AdditionalProperties::RefOr(RefOr::T(Schema::Object(
                text,
            )))))
            .into()
    }
}

impl ToSchema for LabelChanges {}

impl PartialSchema for Labels {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String).build();
        ObjectBuilder::new()
            .additional_properties(Some(AdditionalProperties::RefOr(RefOr::T(Schema::Object(
                text,
            )))))
            .into()
    }
}

impl ToSchema for Labels {}
