//! Events: notifications for subscribers about what happened. The engine never reads them back.

use serde::{Deserialize, Serialize};

use crate::id::{JobId, JobKey, Position};
use crate::job::{JobState, Progress};
use crate::name::{Kind, Namespace, Queue, ScheduleId, Worker};
use crate::time::Timestamp;

/// A change that subscribers are notified of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Position of the event, consecutive within a shard.
    pub position: Position,
    /// Time on the wall clock.
    pub at: Timestamp,
    /// The namespace in which it happened.
    pub namespace: Namespace,
    /// What happened, and to which job, queue or schedule.
    pub happening: Happening,
}

/// What an event reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Happening {
    /// A job changed its state, or was enqueued (`from` is `None`).
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
        /// Number of the last attempt; 0 before the first.
        attempt: u32,
        /// Worker that holds or held the job; `None` if none.
        worker: Option<Worker>,
        /// Failure group, or the reason of a release, an expiration or a cancellation; may be empty.
        reason: String,
    },
    /// A worker reported progress of a running job.
    JobProgressed {
        /// The number of the job.
        key: JobKey,
        /// The id of the job.
        job: JobId,
        /// The progress that the worker reported.
        progress: Progress,
    },
    /// A worker appended to the log of a running job.
    LogAppended {
        /// The number of the job.
        key: JobKey,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The length of the attempt's log now, in bytes.
        bytes: u64,
    },
    /// A job was removed, by retention or by a client.
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
    /// A schedule was created, changed or removed.
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
