//! Small shapes that several documents share.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ganger_client::{Backoff, Bytes, FailurePolicy, KeepFor, RetryPolicy};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::problem::Problem;
use super::short::words;
use super::span::Span;

/// The longest pause that exponential backoff grows to unless the document says otherwise.
const BACKOFF_CAP_DEFAULT: Duration = Duration::from_secs(3_600);

/// Standard alphabet; padding may be there or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes base64 text to bytes.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    BASE64.decode(text)
}

/// For `#[serde(deserialize_with)]`: tells `null`, which is a value, from nothing.
pub(super) fn given<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The bytes that a pair of fields stands for, if one is given. `field` is the plain one's name.
pub(super) fn octets(
    exact: Option<Box<RawValue>>,
    base64: Option<String>,
    field: &str,
) -> Result<Option<Bytes>, Problem> {
    match (exact, base64) {
        (Some(_), Some(_)) => Err(Problem::new(format!(
            "{field} and {field}_base64 are both given: give one"
        ))),
        (Some(exact), None) => Ok(Some(Bytes::copy_from_slice(exact.get().as_bytes()))),
        (None, Some(text)) => match decode(&text) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) => Err(Problem::new(format!(
                "{field}_base64 is not base64: {error}"
            ))),
        },
        (None, None) => Ok(None),
    }
}

/// Labels: an object of strings. A key that stands twice is refused.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels(pub(super) Vec<(String, String)>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs).map(Self)
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            if pairs.iter().any(|(known, _)| *known == key) {
                return Err(A::Error::custom(format_args!(
                    "the label {key:?} stands twice"
                )));
            }
            pairs.push((key, value));
        }
        Ok(pairs)
    }
}

/// What an edge does when its dependency does not succeed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Policy {
    #[default]
    Fail,
    Wait,
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
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryIn {
    max: Option<u32>,
    backoff: Option<BackoffIn>,
    jitter_percent: Option<u32>,
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

/// A duration, a list of them, or `{"base": "20s", "cap": "1h"}`, which doubles.
#[derive(Clone, Debug)]
struct BackoffIn(Backoff);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exponential {
    base: Span,
    cap: Option<Span>,
}

impl<'de> Deserialize<'de> for BackoffIn {
    /// Looks at the first byte: an untagged enum would hide which form was meant, and why it was refused.
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
        backoff.map(Self).map_err(D::Error::custom)
    }
}

/// How long something is kept: a duration, or the word `forever`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeping(pub(super) KeepFor);

impl<'de> Deserialize<'de> for Keeping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if raw.get() == "\"forever\"" {
            return Ok(Self(KeepFor::Ever));
        }
        let span: Span = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        Ok(Self(KeepFor::Time(span.0)))
    }
}
