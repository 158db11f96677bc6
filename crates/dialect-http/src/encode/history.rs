//! A job's history as a document: one flat shape, absent fields where they mean nothing.

use ganger_types::job::AttemptEnd;
use ganger_types::{HistoryEntry, What};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{GroupName, Named, QueueName, WorkerName};
use crate::raw_json::RawJson;
use crate::time::Moment;

/// One line of a job's history.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = HistoryEntry)]
pub(crate) struct HistoryView {
    /// Time of the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Moment>,
    /// enqueued, attempt, failed, cancelled, retried, `timed_out_by_hand`, note.
    what: &'static str,
    /// Of `enqueued`: the queue that the job entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueueName>,
    /// Of `attempt`: its number, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// Of `attempt`: who held it.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerName>,
    /// Of `attempt`: when it was leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    leased_at: Option<Moment>,
    /// Of `attempt`: succeeded, failed, expired, `timed_out`, released, cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'static str>,
    /// Failure group, for entries about a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupName>,
    /// The failure's message, the reason, or the note.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Of a failed attempt: the worker ruled retries out.
    #[serde(skip_serializing_if = "Option::is_none")]
    permanent: Option<bool>,
    /// Of a released attempt: whether it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<bool>,
    /// Of `note`: more data.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<RawJson>,
}

/// Converts the whole history of a job, in the order given.
pub(crate) fn history(entries: Vec<HistoryEntry>) -> Vec<HistoryView> {
    entries
        .into_iter()
        .map(|entry| HistoryView {
            at: Some(Moment(entry.at)),
            ..view(entry.what)
        })
        .collect()
}

fn view(what: What) -> HistoryView {
    let plain = |what| HistoryView {
        what,
        ..HistoryView::default()
    };
    match what {
        What::Enqueued { queue } => HistoryView {
            queue: Some(Named(queue)),
            ..plain("enqueued")
        },
        What::Attempt {
            number,
            worker,
            leased_at,
            end,
        } => HistoryView {
            what: "attempt",
            attempt: Some(number),
            worker: Some(Named(worker)),
            leased_at: Some(Moment(leased_at)),
            ..ended(end)
        },
        What::Failed { group } => HistoryView {
            group: Some(Named(group)),
            ..plain("failed")
        },
        What::Cancelled { reason } => HistoryView {
            message: Some(reason),
            ..plain("cancelled")
        },
        What::Retried => plain("retried"),
        What::TimedOutByHand => plain("timed_out_by_hand"),
        What::Note { text, data } => HistoryView {
            message: Some(text),
            data: serde_json::from_str(&data).ok().map(RawJson),
            ..plain("note")
        },
    }
}

fn ended(end: AttemptEnd) -> HistoryView {
    let plain = |end| HistoryView {
        end: Some(end),
        ..HistoryView::default()
    };
    match end {
        AttemptEnd::Succeeded => plain("succeeded"),
        AttemptEnd::Failed {
            group,
            message,
            permanent,
        } => HistoryView {
            group: Some(Named(group)),
            message: Some(message),
            permanent: Some(permanent),
            ..plain("failed")
        },
        AttemptEnd::Expired => plain("expired"),
        AttemptEnd::TimedOut => plain("timed_out"),
        AttemptEnd::Released { counted, reason } => HistoryView {
            counted: Some(counted),
            message: Some(reason),
            ..plain("released")
        },
        AttemptEnd::Cancelled => plain("cancelled"),
    }
}
