//! Events: what happened, in the past tense, for subscribers. Never read back as state.

use crate::id::{JobId, JobKey, Position};
use crate::job::{JobState, Progress};
use crate::name::{Kind, Namespace, Queue, ScheduleId, Worker};
use crate::time::Timestamp;

/// An announcement.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its place: consecutive within a shard.
    pub position: Position,
    /// When, on the wall clock.
    pub at: Timestamp,
    /// Whose.
    pub namespace: Namespace,
    /// What.
    pub happening: Happening,
}

/// What an event tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// A job moved, or came into being (`from` is `None`).
    JobMoved {
        /// Its number.
        key: JobKey,
        /// Its id.
        job: JobId,
        /// Where.
        queue: Queue,
        /// Which program.
        kind: Kind,
        /// From.
        from: Option<JobState>,
        /// To.
        to: JobState,
        /// Number of its last attempt.
        attempt: u32,
        /// Who held or holds it.
        worker: Option<Worker>,
        /// Failure group, or reason of a release, expiry or cancel; empty if none.
        reason: String,
    },
    /// A running job told how far it is.
    JobProgressed {
        /// Its number.
        key: JobKey,
        /// Its id.
        job: JobId,
        /// How far.
        progress: Progress,
    },
    /// A running job's log grew.
    LogAppended {
        /// Its number.
        key: JobKey,
        /// Which attempt.
        attempt: u32,
        /// Its length now.
        bytes: u64,
    },
    /// A job was removed by retention or by a person.
    JobRemoved {
        /// Its number.
        key: JobKey,
        /// Its id.
        job: JobId,
        /// Where it was.
        queue: Queue,
    },
    /// A queue was paused or resumed, or its settings changed.
    QueueChanged {
        /// Which.
        queue: Queue,
        /// Whether it is paused now.
        paused: bool,
    },
    /// A schedule was made, changed or removed.
    ScheduleChanged {
        /// Which.
        schedule: ScheduleId,
    },
    /// A worker was seen for the first time.
    WorkerSeen {
        /// Who.
        worker: Worker,
    },
    /// A worker deregistered or was silent for too long.
    WorkerGone {
        /// Who.
        worker: Worker,
    },
}
