//! The history of a job, with all kinds of entries in one flat form.

use std::borrow::Cow;
use std::time::SystemTime;

use ganger_types::What;
use ganger_types::history::AttemptEnd;
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::text;
use crate::raw_json::{self, RawJson};
use crate::time::{Moment, calendar, moment, moment_if_any};

/// One entry of a job's history.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct HistoryEntry {
    /// Time of the entry.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub at: SystemTime,
    /// What happened: `enqueued`, `attempt`, `failed`, `cancelled`, `retried`, `timed_out_by_hand`, `note`.
    #[schema(value_type = String)]
    pub what: Cow<'static, str>,
    /// Of `enqueued`: the queue that the job entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Of `attempt`: its number, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Of `attempt`: the worker that held the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Of `attempt`: the time at which the job was leased.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub leased_at: Option<SystemTime>,
    /// Of `attempt`: how it ended: `succeeded`, `failed`, `expired`, `timed_out`, `released`, `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub end: Option<Cow<'static, str>>,
    /// Failure group, for entries about a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Message of the failure, reason of the release or cancellation, or text of the note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Of a failed attempt: whether the worker ruled out retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permanent: Option<bool>,
    /// Of a released attempt: whether it counts against the retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<bool>,
    /// Of `note`: more data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<RawJson>,
}

impl HistoryEntry {
    /// An entry without details.
    pub fn new(at: SystemTime, what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            at,
            what: what.into(),
            queue: None,
            attempt: None,
            worker: None,
            leased_at: None,
            end: None,
            group: None,
            message: None,
            permanent: None,
            counted: None,
            data: None,
        }
    }
}

impl From<ganger_types::HistoryEntry> for HistoryEntry {
    fn from(entry: ganger_types::HistoryEntry) -> Self {
        let plain = Self::new(calendar(entry.at), entry.what.as_str());
        match entry.what {
            What::Enqueued { queue } => Self {
                queue: Some(text(queue.as_bytes())),
                ..plain
            },
            What::Attempt {
                number,
                worker,
                leased_at,
                end,
            } => Self {
                attempt: Some(number),
                worker: Some(text(worker.as_bytes())),
                leased_at: Some(calendar(leased_at)),
                ..ended(plain, end)
            },
            What::Failed { group } => Self {
                group: Some(text(group.as_bytes())),
                ..plain
            },
            What::Cancelled { reason } => Self {
                message: Some(reason),
                ..plain
            },
            What::Retried | What::TimedOutByHand => plain,
            What::Note { text, data } => Self {
                message: Some(text),
                data: raw_json::parse(&data),
                ..plain
            },
        }
    }
}

fn ended(entry: HistoryEntry, end: AttemptEnd) -> HistoryEntry {
    let plain = HistoryEntry {
        end: Some(end.as_str().into()),
        ..entry
    };
    match end {
        AttemptEnd::Failed {
            group,
            message,
            permanent,
        } => HistoryEntry {
            group: Some(text(group.as_bytes())),
            message: Some(message),
            permanent: Some(permanent),
            ..plain
        },
        AttemptEnd::Released { counted, reason } => HistoryEntry {
            counted: Some(counted),
            message: Some(reason),
            ..plain
        },
        AttemptEnd::Succeeded
        | AttemptEnd::Expired
        | AttemptEnd::TimedOut
        | AttemptEnd::Cancelled => plain,
    }
}
