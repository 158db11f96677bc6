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
pub struct HistoryView {
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
pub fn history(entries: Vec<HistoryEntry>) -> Vec<HistoryView> {
    entries
        .into_iter()
        .map(|entry| HistoryView {
            at: Some(Moment(entry.at)),
            ..view(entry.what)
        })
        .collect()
}

fn view(what: What) -> HistoryView {
    let plain = HistoryView {
        what: what.as_str(),
        ..HistoryView::default()
    };
    match what {
        What::Enqueued { queue } => HistoryView {
            queue: Some(Named(queue)),
            ..plain
        },
        What::Attempt {
            number,
            worker,
            leased_at,
            end,
        } => HistoryView {
            what: plain.what,
            attempt: Some(number),
            worker: Some(Named(worker)),
            leased_at: Some(Moment(leased_at)),
            ..ended(end)
        },
        What::Failed { group } => HistoryView {
            group: Some(Named(group)),
            ..plain
        },
        What::Cancelled { reason } => HistoryView {
            message: Some(reason),
            ..plain
        },
        What::Retried | What::TimedOutByHand => plain,
        What::Note { text, data } => HistoryView {
            message: Some(text),
            data: serde_json::from_str(&data).ok().map(RawJson),
            ..plain
        },
    }
}

fn ended(end: AttemptEnd) -> HistoryView {
    let plain = HistoryView {
        end: Some(end.as_str()),
        ..HistoryView::default()
    };
    match end {
        AttemptEnd::Failed {
            group,
            message,
            permanent,
        } => HistoryView {
            group: Some(Named(group)),
            message: Some(message),
            permanent: Some(permanent),
            ..plain
        },
        AttemptEnd::Released { counted, reason } => HistoryView {
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
