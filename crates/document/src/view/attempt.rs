//! The attempts of a job as a document: when, on which worker, how long, how they ended, how much they logged.

use std::time::{Duration, SystemTime};

use ganger_types::history::AttemptEnd;
use ganger_types::{StoredJob, Timestamp, What};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::text;
use crate::time::{Moment, calendar, moment, moment_if_any, seconds};

/// The attempts of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Attempts {
    /// Attempts that the history has, oldest first; the last one may run.
    pub attempts: Vec<Attempt>,
    /// Number of entries that were dropped from the middle of the history; some may be attempts.
    pub history_dropped: u32,
}

/// An attempt of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Attempt {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Worker that held the lease.
    pub worker: String,
    /// Time at which the job was leased.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub leased_at: SystemTime,
    /// Time at which the attempt ended; absent while it runs.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub ended_at: Option<SystemTime>,
    /// How it ended: `succeeded`, `failed`, `expired`, `timed_out`, `released`, `cancelled`; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Failure group of a failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Message of a failed attempt, or reason of a release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Seconds from what happened to the job before, such as its enqueueing or the end of the attempt before, to the
    /// lease.
    #[serde(rename = "waited_seconds", serialize_with = "seconds")]
    #[schema(value_type = f64)]
    pub waited_for: Duration,
    /// Seconds from the lease to the end, or until now.
    #[serde(rename = "ran_seconds", serialize_with = "seconds")]
    #[schema(value_type = f64)]
    pub ran_for: Duration,
    /// Length of its log in bytes.
    pub log_bytes: u64,
}

impl Attempts {
    /// The attempts of a stored job at `now`, without the lengths of their logs.
    pub fn new(job: &StoredJob, now: Timestamp) -> Self {
        let mut before = job.record.created_at;
        let mut attempts = Vec::new();
        for entry in &job.record.history {
            attempts.extend(Attempt::ended(&entry.what, before, entry.at));
            before = entry.at;
        }
        attempts.extend(job.lease.as_ref().map(|lease| Attempt {
            attempt: lease.attempt,
            worker: text(lease.worker.as_bytes()),
            leased_at: calendar(lease.granted_at),
            ended_at: None,
            end: None,
            group: None,
            message: None,
            waited_for: lease.granted_at.since(before),
            ran_for: now.since(lease.granted_at),
            log_bytes: 0,
        }));
        Self {
            attempts,
            history_dropped: job.record.history_dropped,
        }
    }
}

impl Attempt {
    /// The attempt of an entry that ended at `at`, after what happened at `before`; `None` if the entry is about
    /// something else.
    fn ended(what: &What, before: Timestamp, at: Timestamp) -> Option<Self> {
        let What::Attempt {
            number,
            worker,
            leased_at,
            end,
        } = what
        else {
            return None;
        };
        let (group, message) = match end {
            AttemptEnd::Failed { group, message, .. } => {
                (Some(text(group.as_bytes())), Some(message.clone()))
            }
            AttemptEnd::Released { reason, .. } => (None, Some(reason.clone())),
            _ => (None, None),
        };
        Some(Self {
            attempt: *number,
            worker: text(worker.as_bytes()),
            leased_at: calendar(*leased_at),
            ended_at: Some(calendar(at)),
            end: Some(end.as_str().to_owned()),
            group,
            message,
            waited_for: leased_at.since(before),
            ran_for: at.since(*leased_at),
            log_bytes: 0,
        })
    }
}
