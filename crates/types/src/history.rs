//! The history of a job: what happened to it, and how its attempts ended.

use crate::name::{Group, Queue, Worker};
use crate::time::Timestamp;

/// One line of a job's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Time of the event on the wall clock.
    pub at: Timestamp,
    /// The event, with its details.
    pub what: What,
}

/// An event in the history of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The job was enqueued, or moved to another queue.
    Enqueued {
        /// Queue that the job entered.
        queue: Queue,
    },
    /// An attempt ended, in any way.
    Attempt {
        /// Number of the attempt, from 1.
        number: u32,
        /// The worker that held the lease.
        worker: Worker,
        /// Time of the lease's grant.
        leased_at: Timestamp,
        /// How the attempt ended.
        end: AttemptEnd,
    },
    /// The job failed without an attempt that failed: its deadline passed, a dependency failed, or too many leases
    /// expired.
    Failed {
        /// Failure group: the cause in a word.
        group: Group,
    },
    /// The job was cancelled.
    Cancelled {
        /// Reason for it; may be empty.
        reason: String,
    },
    /// A client retried the job after it had ended.
    Retried,
    /// A client ended the running attempt by hand.
    TimedOutByHand,
    /// A note that a client added.
    Note {
        /// The text of the note.
        text: String,
        /// Further data as JSON text; empty if there is none.
        data: String,
    },
}

impl What {
    /// The word for what happened, such as `attempt`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Enqueued { .. } => "enqueued",
            Self::Attempt { .. } => "attempt",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
            Self::Retried => "retried",
            Self::TimedOutByHand => "timed_out_by_hand",
            Self::Note { .. } => "note",
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The worker reported success.
    Succeeded,
    /// The worker reported a failure.
    Failed {
        /// The failure group that the worker reported.
        group: Group,
        /// The message that the worker reported; may be empty.
        message: String,
        /// Whether the worker ruled retries out.
        permanent: bool,
    },
    /// The lease expired: the worker died or lost its connection.
    Expired,
    /// The attempt took longer than the job's timeout.
    TimedOut,
    /// The worker gave the job back.
    Released {
        /// Whether the attempt counts against the retry limit.
        counted: bool,
        /// Reason for it; may be empty.
        reason: String,
    },
    /// The job was cancelled while the attempt ran.
    Cancelled,
}

impl AttemptEnd {
    /// The word for this end, such as `timed_out`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Expired => "expired",
            Self::TimedOut => "timed_out",
            Self::Released { .. } => "released",
            Self::Cancelled => "cancelled",
        }
    }
}
