//! Conversions between messages of the schema and the types of `ganger-types`, in both directions.
//!
//! A type converts to a message by [`From`]. The conversion of a message checks every field, and an error names the
//! field by its path ([`At`]). The server converts requests by these rules, and the client converts answers by the
//! same ones.

mod attempt;
mod attention;
mod cancellation;
mod cluster;
mod event;
mod explanation;
mod graph;
mod graphs;
mod insight;
mod job;
mod operation;
mod policy;
mod queue;
mod schedule;
mod series;
mod server;
mod settings;

use std::fmt;
use std::time::Duration;

use ganger_types::{JobId, JobState, LabelKey, LabelValue, RetryPolicy, ShardId, Tag};

use crate::v1;

pub use cancellation::cancel_effects;
pub use event::{event, event_message};
pub use explanation::{calendar, explanation, us};
pub use graph::graph;
pub use graphs::{graph_layout, graph_summary, graphs};
pub use insight::statistics;
pub use job::{job, job_message, shorten_job};
pub use operation::{operation, operation_message};
pub use policy::{
    catch_up, check_progress, check_retry, failure_policy, job_state, overlap, priority,
    priority_millionths, retry, take_mode,
};
pub use queue::{effective_messages, namespace, queue};
pub use schedule::schedule;
pub use settings::{namespace_settings, queue_counts, queue_settings, retention};

/// The path of a field in a message, for errors. It is only formatted when an error is shown.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    parent: Option<&'a At<'a>>,
    field: &'a str,
    index: Option<usize>,
}

impl<'a> At<'a> {
    /// A field of the message itself.
    pub fn top(field: &'a str) -> Self {
        Self {
            parent: None,
            field,
            index: None,
        }
    }

    /// A field of the message at this path.
    #[must_use]
    pub fn field(&'a self, field: &'a str) -> Self {
        Self {
            parent: Some(self),
            field,
            index: None,
        }
    }

    /// An entry of the list at this path.
    #[must_use]
    pub fn entry(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.field)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

/// The error for an invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// `invalid_value`, `missing_field` or `too_large`, as `docs/errors.md` lists them.
    pub code: &'static str,
    /// Message with the field, its value, the limit, and the next step.
    pub message: String,
}

impl FieldError {
    /// The error for a field with an invalid value.
    pub fn invalid(field: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self {
            code: "invalid_value",
            message: format!("{field}: {reason}"),
        }
    }

    /// The error for a missing field.
    pub fn missing(field: impl fmt::Display, what: &str) -> Self {
        Self {
            code: "missing_field",
            message: format!("{field} is missing: {what}"),
        }
    }

    /// The error for a list or number beyond its limit.
    pub fn too_large(field: impl fmt::Display, actual: usize, limit: usize) -> Self {
        Self {
            code: "too_large",
            message: format!("{field} is {actual}, the limit is {limit}: send less"),
        }
    }
}

/// A duration in whole milliseconds, rounded up so that only zero becomes 0.
pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The text of an optional name; empty if there is none.
pub fn text_or_empty(name: Option<&impl Text>) -> String {
    name.map(Text::text).unwrap_or_default()
}

/// A name of the engine as text in messages: a byte that is not UTF-8 becomes U+FFFD.
pub trait Text {
    /// The text of the name.
    fn text(&self) -> String;
}

macro_rules! texts {
    ($($name:ident)*) => {$(
        impl Text for ganger_types::$name {
            fn text(&self) -> String {
                self.to_text().into_owned()
            }
        }
    )*};
}
texts! { Graph JobId JobName ScheduleId UniqueKey Worker }

/// The text as an option; an empty text is `None`.
pub fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// The global name of a job, `shard/id`.
pub fn global_name(shard: &ShardId, id: &JobId) -> String {
    format!("{shard}/{}", id.to_text())
}

/// The number of a state in the schema.
pub fn state_number(state: JobState) -> i32 {
    i32::from(v1::JobState::from(state))
}

/// A required state.
///
/// # Errors
/// If the state is missing or unknown.
pub fn known_state(at: At<'_>, number: i32) -> Result<JobState, FieldError> {
    job_state(at, number)?.ok_or_else(|| FieldError::missing(at, "the state of a job"))
}

/// An optional retry policy.
///
/// # Errors
/// If a field of the policy is out of range.
pub fn retry_if_any(
    at: At<'_>,
    policy: Option<&v1::RetryPolicy>,
) -> Result<Option<RetryPolicy>, FieldError> {
    policy.map(|policy| retry(at, policy)).transpose()
}

/// Labels as messages of the schema, in their order.
pub fn label_messages(labels: &[(LabelKey, LabelValue)]) -> Vec<v1::Label> {
    let label = |(key, value): &(LabelKey, LabelValue)| v1::Label {
        key: key.to_text().into_owned(),
        value: value.to_text().into_owned(),
    };
    labels.iter().map(label).collect()
}

/// Labels as pairs of texts.
pub fn pairs(labels: Vec<v1::Label>) -> Vec<(String, String)> {
    labels
        .into_iter()
        .map(|label| (label.key, label.value))
        .collect()
}

/// Tags as texts, in their order; bytes that are not UTF-8 are replaced.
pub fn tag_texts(tags: &[Tag]) -> Vec<String> {
    tags.iter().map(|tag| tag.to_text().into_owned()).collect()
}

/// Refuses a list or text that is longer than its limit.
///
/// # Errors
/// If the list or text is too long.
pub fn at_most(at: At<'_>, actual: usize, limit: usize) -> Result<(), FieldError> {
    if actual > limit {
        Err(FieldError::too_large(at, actual, limit))
    } else {
        Ok(())
    }
}

/// A number with a default for 0 and an upper limit.
///
/// # Errors
/// If the number is beyond the limit.
pub fn bounded(at: At<'_>, value: u32, default: u32, limit: u32) -> Result<u32, FieldError> {
    match value {
        0 => Ok(default),
        _ if value > limit => Err(FieldError::invalid(
            at,
            format_args!("{value} is out of range: 1 to {limit}"),
        )),
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests;
