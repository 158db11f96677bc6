//! Retry policies, and the retention of a job.

use std::borrow::Cow;
use std::time::Duration;

use ganger_types::{Backoff, RetryPolicy};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::time::Span;

/// Default of the longest pause of exponential backoff.
const BACKOFF_CAP_DEFAULT: Duration = Duration::from_secs(3_600);

/// How often and when a failed job is retried. Answers give every field.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"max\": 5, \"backoff\": \"10s\"}"
)]
#[schema(as = RetryPolicy)]
pub struct RetryDocument {
    /// Maximum number of retries after the first attempt; 3 if absent.
    max: Option<u32>,
    /// Pause before each retry: a duration, a list of durations (the last repeats), or
    /// `{"base": "20s", "cap": "1h"}`, which doubles up to the cap and is the default.
    backoff: Option<BackoffDocument>,
    /// Percent by which each pause varies at random, 0 to 100; 0 if absent.
    jitter_percent: Option<u8>,
    /// Lease expirations over the life of the job that do not count as retries; the next one fails the job. If absent,
    /// each counts as a retry, and the namespace limits how many may follow each other.
    lease_expirations_max: Option<u32>,
}

impl From<RetryDocument> for RetryPolicy {
    fn from(given: RetryDocument) -> Self {
        let default = Self::default();
        Self {
            retries_max: given.max.unwrap_or(default.retries_max),
            backoff: given.backoff.map_or(default.backoff, |it| it.0),
            jitter_percent: given.jitter_percent.unwrap_or(default.jitter_percent),
            lease_expirations_max: given.lease_expirations_max,
        }
    }
}

impl From<&RetryPolicy> for RetryDocument {
    fn from(policy: &RetryPolicy) -> Self {
        Self {
            max: Some(policy.retries_max),
            backoff: Some(BackoffDocument(policy.backoff.clone())),
            jitter_percent: Some(policy.jitter_percent),
            lease_expirations_max: policy.lease_expirations_max,
        }
    }
}

/// For `#[serde(serialize_with)]`: a policy as its document.
pub(crate) fn as_document<S: Serializer>(
    policy: &RetryPolicy,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    RetryDocument::from(policy).serialize(serializer)
}

/// For `#[serde(serialize_with)]`: as [`as_document`], or null.
#[expect(clippy::ref_option, reason = "serde passes fields by reference")]
pub(crate) fn as_document_if_any<S: Serializer>(
    policy: &Option<RetryPolicy>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let document = policy.as_ref().map(RetryDocument::from);
    document.serialize(serializer)
}

#[derive(Clone, Debug)]
struct BackoffDocument(Backoff);

#[derive(Deserialize, Serialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"base\": \"20s\", \"cap\": \"1h\"}"
)]
struct Exponential {
    base: Span,
    cap: Option<Span>,
}

impl<'de> Deserialize<'de> for BackoffDocument {
    /// Looks at the first byte of the value, because errors of an untagged enum would not name the form that the
    /// client used.
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

impl Serialize for BackoffDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Backoff::Fixed(pause) => Span(*pause).serialize(serializer),
            Backoff::List(list) => serializer.collect_seq(list.iter().copied().map(Span)),
            Backoff::Exponential { base, cap } => Exponential {
                base: Span(*base),
                cap: Some(Span(*cap)),
            }
            .serialize(serializer),
        }
    }
}

impl PartialSchema for BackoffDocument {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(Span::schema())
            .item(ArrayBuilder::new().items(Span::schema()))
            .item(
                ObjectBuilder::new()
                    .property("base", Span::schema())
                    .property("cap", Span::schema())
                    .required("base"),
            )
            .into()
    }
}

impl ToSchema for BackoffDocument {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Backoff")
    }
}

/// A retention: a duration, or the word `forever`.
#[derive(Clone, Copy, Debug)]
pub struct KeepFor(pub Option<Duration>);

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
