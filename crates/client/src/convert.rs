//! Conversions between the structs of the SDK and the messages of the API, written by hand so that either can change
//! without the other.

mod import;
mod insight;
mod job;
mod lease;
mod peer;
mod schedule;

use ganger_proto::convert::{self, At};
use ganger_proto::v1;

use crate::error::Error;
use crate::model::{FailurePolicy, JobState, KeepFor};

pub(crate) use ganger_proto::convert::{calendar as at, ms, non_empty as some, pairs, us};
pub(crate) use import::imported;
pub(crate) use job::{count, new_start, page};
pub(crate) use lease::{answer, deliveries, wire_report};

pub(crate) fn labels(pairs: Vec<(String, String)>) -> Vec<v1::Label> {
    pairs
        .into_iter()
        .map(|(key, value)| v1::Label { key, value })
        .collect()
}

/// Converts the state of a job, which every answer must have.
pub(crate) fn state(state: i32) -> Result<JobState, Error> {
    Ok(convert::known_state(At::top("state"), state)?)
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
