//! Tracked jobs, events, the server itself.

use std::time::{Duration, SystemTime};

use super::{Job, JobState, Progress};

/// A job id that is tracked.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackedJob {
    /// Id of the job.
    pub job: String,
    /// Time since which the job is tracked.
    pub since: SystemTime,
    /// The job as it stands; `None`: it is gone.
    pub view: Option<Job>,
}

/// The server's version, state and load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Version of the server.
    pub version: String,
    /// Name of the server's shard.
    pub shard: String,
    /// `ready`, `starting`, `full` or `stopped`.
    pub health: String,
    /// Why it is not ready; empty if it is.
    pub reason: String,
    /// Since when it runs.
    pub uptime: Duration,
    /// Whether it is about to stop.
    pub draining: bool,
    /// Number of jobs that have not ended.
    pub live_jobs: u64,
}

/// Which events to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Those after this position; `None`: from now on.
    pub after: Option<u64>,
    /// Of these jobs only; empty: of all.
    pub jobs: Vec<String>,
    /// Of these queues only; empty: of all.
    pub queues: Vec<String>,
    /// Leaves out progress and growing logs.
    pub moves_only: bool,
}

/// An event of a shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its place: grows within a shard.
    pub position: u64,
    /// Time of the event.
    pub at: SystemTime,
    /// What the event reports.
    pub happening: Happening,
}

/// What an event tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// A job moved, or came into being.
    JobMoved(JobMoved),
    /// A running job told how far it is.
    JobProgressed {
        /// Id of the job.
        job: String,
        /// Number of the job in its shard.
        number: u64,
        /// Progress that the job reported.
        progress: Progress,
    },
    /// A running job's log grew.
    LogAppended {
        /// Number of the job in its shard.
        number: u64,
        /// Number of the attempt that wrote.
        attempt: u32,
        /// Length of the attempt's log now, in bytes.
        bytes: u64,
    },
    /// A job was removed by retention or by a person.
    JobRemoved {
        /// Id of the job.
        job: String,
        /// Number of the job in its shard.
        number: u64,
        /// Queue that the job was in.
        queue: String,
    },
    /// A queue was paused or resumed, or its settings changed.
    QueueChanged {
        /// Name of the queue.
        queue: String,
        /// Whether it is paused now.
        paused: bool,
    },
    /// A schedule was made, changed or removed.
    ScheduleChanged {
        /// Name of the schedule.
        schedule: String,
    },
    /// A worker was seen for the first time.
    WorkerSeen {
        /// Name of the worker.
        worker: String,
    },
    /// A worker deregistered or was silent for too long.
    WorkerGone {
        /// Name of the worker.
        worker: String,
    },
}

/// A change of a job's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMoved {
    /// Id of the job.
    pub job: String,
    /// Number of the job in its shard.
    pub number: u64,
    /// Queue of the job.
    pub queue: String,
    /// Kind of the job: the program that runs it.
    pub kind: String,
    /// From; `None`: it came into being.
    pub from: Option<JobState>,
    /// State of the job now.
    pub to: JobState,
    /// Number of its last attempt.
    pub attempt: u32,
    /// Who held or holds it.
    pub worker: Option<String>,
    /// Failure group, or reason of a release, expiry or cancel; empty if none.
    pub reason: String,
}
