//! Small shapes that several documents share.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::decode::word::words;
use ganger_types::{Backoff, FailurePolicy, LabelKey, LabelValue, Priority, RetryPolicy};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::names::{Name, Named, read};
use crate::time::Span;

/// The longest pause that exponential backoff grows to unless the request says otherwise.
const BACKOFF_CAP_DEFAULT: Duration = Duration::from_secs(3_600);

/// A whole priority; smaller runs first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rank(pub(crate) Priority);

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

/// Labels: an object of strings. A key that stands twice is refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels(pub(crate) Vec<(LabelKey, LabelValue)>);

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

/// Changes to labels, in the manner of a merge patch (RFC 7396): a string sets, null takes off.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelChanges {
    pub(crate) set: Vec<(LabelKey, LabelValue)>,
    pub(crate) removed: Vec<LabelKey>,
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

/// The pairs of an object, and what to call it. A key that stands twice is refused.
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

/// What an edge does when its dependency does not succeed.
#[derive(Clone, Copy, Debug, Default, ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum Policy {
    /// The dependent fails too.
    #[default]
    Fail,
    /// The dependent waits until the dependency was retried and succeeded.
    Wait,
    /// The dependent goes on; a data input reads null.
    Ignore,
}
words!(Policy { "fail" => Fail, "wait" => Wait, "ignore" => Ignore });

impl From<Policy> for FailurePolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Fail => Self::Fail,
            Policy::Wait => Self::Wait,
            Policy::Ignore => Self::Ignore,
        }
    }
}

/// How often and when a job is tried again.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"max\": 5, \"backoff\": \"10s\"}"
)]
#[schema(as = Retry)]
pub(crate) struct RetryIn {
    /// Retries after the first attempt; 3 by default.
    max: Option<u32>,
    /// The pause before each: a duration, a list of them (the last repeats), or
    /// `{"base": "20s", "cap": "1h"}`, which doubles. The latter is the default.
    backoff: Option<BackoffIn>,
    /// Hundredths by which each pause varies at random; 0 by default.
    jitter_percent: Option<u8>,
    /// Leases that may run out (their worker was lost) without counting against the retries, in the whole life
    /// of the job; the next one fails it. By default each counts, and the namespace bounds them in a row.
    lease_expirations_max: Option<u32>,
}

impl From<RetryIn> for RetryPolicy {
    fn from(given: RetryIn) -> Self {
        let default = Self::default();
        Self {
            retries_max: given.max.unwrap_or(default.retries_max),
            backoff: given.backoff.map_or(default.backoff, |it| it.0),
            jitter_percent: given.jitter_percent.unwrap_or(default.jitter_percent),
            lease_expirations_max: given.lease_expirations_max,
        }
    }
}

#[derive(Clone, Debug)]
struct BackoffIn(Backoff);

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"base\": \"20s\", \"cap\": \"1h\"}"
)]
struct Exponential {
    base: Span,
    cap: Option<Span>,
}

impl<'de> Deserialize<'de> for BackoffIn {
    /// Looks at the first byte of the value: untagged enums would hide which form was meant, and why
    /// it was refused.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        let backoff = if text.starts_with('[') {
            serde_json::from_str::<Vec<Span>>(text)
                .map(|list| Backoff::List(list.into_iter().map(|span| span.0).collect()))
        } else if text.starts_with('{') {
            serde_json::from_str::<Exponential>(text).map(|given| Backoff::Exponential {
                base: given.base.0,
                cap: given
                    .cap
                    .map_or(BACKOFF_CAP_DEFAULT.max(given.base.0), |cap| cap.0),
            })
        } else {
            serde_json::from_str::<Span>(text).map(|span| Backoff::Fixed(span.0))
        };
        backoff.map(Self).map_err(|error| {
            let text = error.to_string();
            D::Error::custom(text.split(" at line ").next().unwrap_or_default())
        })
    }
}

impl PartialSchema for BackoffIn {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .into()
    }
}

impl ToSchema for BackoffIn {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Backoff")
    }
}

/// How long something is kept: a duration, or the word `forever`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepFor(pub(crate) Option<Duration>);

impl<'de> Deserialize<'de> for KeepFor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if raw.get() == "\"forever\"" {
            return Ok(Self(None));
        }
        let span: Span = serde_json::from_str(raw.get()).map_err(|error| {
            let text = error.to_string();
            let reason = text.split(" at line ").next().unwrap_or_default();
            D::Error::custom(format_args!("{reason}; or \"forever\""))
        })?;
        Ok(Self(Some(span.0)))
    }
}

impl PartialSchema for KeepFor {
    fn schema() -> RefOr<Schema> {
        let about = "A duration such as 1d, or the word forever.";
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(about))
            .into()
    }
}

impl ToSchema for KeepFor {}
