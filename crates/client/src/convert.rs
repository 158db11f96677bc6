//! Between the SDK's structs and the wire's: by hand, so that neither freezes the other.

mod import;
mod insight;
mod job;
mod lease;
mod peer;
mod queue;
mod schedule;

use ganger_proto::convert::{self, At};
use ganger_proto::v1;

use crate::error::Error;
use crate::model::{FailurePolicy, JobState, KeepFor, RetryPolicy};

pub(crate) use ganger_proto::convert::{calendar as at, ms, us};
pub(crate) use import::imported;
pub(crate) use insight::{statistics, worker};
pub(crate) use job::{job, page};
pub(crate) use lease::{answer, deliveries, wire_report};
pub(crate) use schedule::schedule;

/// The text as an option; an empty text is `None`.
pub(crate) fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

pub(crate) fn labels(pairs: Vec<(String, String)>) -> Vec<v1::Label> {
    pairs
        .into_iter()
        .map(|(key, value)| v1::Label { key, value })
        .collect()
}

pub(crate) fn pairs(labels: Vec<v1::Label>) -> Vec<(String, String)> {
    labels
        .into_iter()
        .map(|label| (label.key, label.value))
        .collect()
}

/// The state of a job; an answer always gives one.
pub(crate) fn state(state: i32) -> Result<JobState, Error> {
    state_or_none(state)?.ok_or_else(|| Error::bad_reply("a job without a state"))
}

/// `None` for "not said".
pub(crate) fn state_or_none(state: i32) -> Result<Option<JobState>, Error> {
    Ok(convert::job_state(At::top("state"), state)?)
}

/// A retry policy that may be absent.
pub(crate) fn retry(wire: Option<v1::RetryPolicy>) -> Result<Option<RetryPolicy>, Error> {
    let read = wire.map(|policy| convert::retry(At::top("retry"), &policy));
    Ok(read.transpose()?)
}

pub(crate) fn wire_state(state: JobState) -> i32 {
    i32::from(v1::JobState::from(state))
}

pub(crate) fn wire_policy(policy: FailurePolicy) -> i32 {
    i32::from(v1::FailurePolicy::from(policy))
}

impl From<KeepFor> for v1::KeepFor {
    fn from(keep: KeepFor) -> Self {
        let for_ms = match keep {
            KeepFor::Time(time) => Some(ms(time)),
            KeepFor::Ever => None,
        };
        Self { for_ms }
    }
}
