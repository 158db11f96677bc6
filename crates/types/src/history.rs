//! The history of a job: what happened to it, and how its attempts ended.

use crate::name::{Group, Queue, Worker};
use crate::time::Timestamp;

/// One line of a job's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// When it happened, on the wall clock.
    pub at: Timestamp,
    /// The event, with its details.
    pub what: What,
}

/// What a history entry tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Came into being, or was put into another queue.
    Enqueued {
        /// The queue of the job then.
        queue: Queue,
    },
    /// An attempt has ended, in any way.
    Attempt {
        /// Its number, from 1.
        number: u32,
        /// The worker that held the lease.
        worker: Worker,
        /// When it was leased.
        leased_at: Timestamp,
        /// The way in which the attempt ended.
        end: AttemptEnd,
    },
    /// Failed without an attempt: deadline, dependency, poison.
    Failed {
        /// The failure group: the cause in a word.
        group: Group,
    },
    /// The job was cancelled.
    Cancelled {
        /// The reason that was given; may be empty.
        reason: String,
    },
    /// Put back by a person after it had ended.
    Retried,
    /// Timed out by hand.
    TimedOutByHand,
    /// A note of the user's.
    Note {
        /// The text of the note.
        text: String,
        /// Any more, as JSON text; empty if none.
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
    /// With a reported failure.
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
    /// The run took longer than the job allows.
    TimedOut,
    /// The worker gave the job back.
    Released {
        /// Whether it counts as an attempt.
        counted: bool,
        /// The reason that was given; may be empty.
        reason: String,
    },
    /// The job was cancelled while the attempt ran.
    Cancelled,
}

impl AttemptEnd {
    /// The word for it, such as `timed_out`.
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
