//! Conversions between messages of the schema and the types of `ganger-types`, both directions beside each other.
//!
//! Outward a message is made [`From`] a type. Inward every field is checked, and an error names the field by its path
//! ([`At`]). The server reads requests by these rules, the client reads answers by the same ones.

mod event;
mod explanation;
mod graph;
mod insight;
mod job;
mod policy;
mod queue;
mod schedule;
mod settings;

use std::fmt;
use std::time::Duration;

use ganger_types::{JobId, JobState, LabelKey, LabelValue, RetryPolicy, ShardId, Tag};

use crate::v1;

pub use event::{event, event_message};
pub use explanation::{calendar, explanation, us};
pub use graph::graph;
pub use insight::statistics;
pub use job::{job, job_message};
pub use policy::{
    catch_up, check_progress, check_retry, failure_policy, job_state, overlap, priority,
    priority_millionths, retry, take_mode,
};
pub use queue::{namespace, queue};
pub use schedule::schedule;
pub use settings::{namespace_settings, queue_counts, queue_settings, retention};

/// A field of a message, for errors. Costs nothing until it is shown.
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

    /// A field below this place.
    #[must_use]
    pub fn field(&'a self, field: &'a str) -> Self {
        Self {
            parent: Some(self),
            field,
            index: None,
        }
    }

    /// An entry of the list at this place.
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

/// A field that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// `invalid_value`, `missing_field` or `too_large`, as `docs/errors.md` lists them.
    pub code: &'static str,
    /// The field, its value, the limit, and the next step.
    pub message: String,
}

impl FieldError {
    /// A field with a value that it cannot have.
    pub fn invalid(field: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self {
            code: "invalid_value",
            message: format!("{field}: {reason}"),
        }
    }

    /// A field that must be there.
    pub fn missing(field: impl fmt::Display, what: &str) -> Self {
        Self {
            code: "missing_field",
            message: format!("{field} is missing: {what}"),
        }
    }

    /// A list or number beyond its limit.
    pub fn too_large(field: impl fmt::Display, actual: usize, limit: usize) -> Self {
        Self {
            code: "too_large",
            message: format!("{field} is {actual}, the limit is {limit}: send less"),
        }
    }
}

/// Whole milliseconds, rounded up: a time that is not zero must not read as zero.
pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The text of a name that may be absent; an empty text is none.
pub fn text_or_empty(name: Option<&impl Text>) -> String {
    name.map(Text::text).unwrap_or_default()
}

/// A name of the engine's as the messages carry it: a byte that is not UTF-8 becomes U+FFFD.
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

/// A job as it is called everywhere, `shard/id`.
pub fn global_name(shard: &ShardId, id: &JobId) -> String {
    format!("{shard}/{}", id.to_text())
}

/// The number of a state in the schema.
pub fn state_number(state: JobState) -> i32 {
    i32::from(v1::JobState::from(state))
}

/// A state that must be given.
///
/// # Errors
/// If it is not, or unknown.
pub fn known_state(at: At<'_>, number: i32) -> Result<JobState, FieldError> {
    job_state(at, number)?.ok_or_else(|| FieldError::missing(at, "the state of a job"))
}

/// A retry policy that may be absent.
///
/// # Errors
/// If a field of it is out of range.
pub fn retry_if_any(
    at: At<'_>,
    policy: Option<&v1::RetryPolicy>,
) -> Result<Option<RetryPolicy>, FieldError> {
    policy.map(|policy| retry(at, policy)).transpose()
}

/// Labels as messages.
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

/// Tags as texts.
pub fn tag_texts(tags: &[Tag]) -> Vec<String> {
    tags.iter().map(|tag| tag.to_text().into_owned()).collect()
}

/// Refuses a list or text that is longer than its limit.
///
/// # Errors
/// If it is.
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
/// If it is beyond the limit.
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
