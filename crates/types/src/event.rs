//! Events: what happened, in the past tense, for subscribers. Never read back as state.

use crate::id::{JobId, JobKey, Position};
use crate::job::{JobState, Progress};
use crate::name::{Kind, Namespace, Queue, ScheduleId, Worker};
use crate::time::Timestamp;

/// A change that subscribers are notified of.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its place: consecutive within a shard.
    pub position: Position,
    /// When, on the wall clock.
    pub at: Timestamp,
    /// The namespace in which it happened.
    pub namespace: Namespace,
    /// What has happened, with its details.
    pub happening: Happening,
}

/// What an event tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// A job moved, or came into being (`from` is `None`).
    JobMoved {
        /// The number of the job.
        key: JobKey,
        /// The id of the job.
        job: JobId,
        /// The queue of the job.
        queue: Queue,
        /// The kind, which names the job's program.
        kind: Kind,
        /// The state before. `None`: the job is new or was retried.
        from: Option<JobState>,
        /// The state of the job now.
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
        /// The number of the job.
        key: JobKey,
        /// The id of the job.
        job: JobId,
        /// The progress that the worker reported.
        progress: Progress,
    },
    /// A running job's log grew.
    LogAppended {
        /// The number of the job.
        key: JobKey,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The length of the attempt's log now, in bytes.
        bytes: u64,
    },
    /// A job was removed by retention or by a person.
    JobRemoved {
        /// The number of the job.
        key: JobKey,
        /// The id of the job.
        job: JobId,
        /// The queue that the job was in.
        queue: Queue,
    },
    /// A queue was paused or resumed, or its settings changed.
    QueueChanged {
        /// The name of the queue.
        queue: Queue,
        /// Whether it is paused now.
        paused: bool,
    },
    /// A schedule was made, changed or removed.
    ScheduleChanged {
        /// The id of the schedule.
        schedule: ScheduleId,
    },
    /// A worker was seen for the first time.
    WorkerSeen {
        /// The name of the worker.
        worker: Worker,
    },
    /// A worker deregistered or was silent for too long.
    WorkerGone {
        /// The name of the worker.
        worker: Worker,
    },
}
