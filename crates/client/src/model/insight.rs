//! Statistics, workers, events, the server itself.

use std::time::{Duration, SystemTime};

use super::{Job, JobState, Progress};

/// What happened in one queue on one day.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Days since the Unix epoch, UTC.
    pub day: u32,
    /// Jobs that failed this day and are still failed.
    pub failed: i64,
    /// Failures ever counted this day.
    pub failures: u64,
    /// Leases that ran out, and retries.
    pub retries: u64,
    /// From ready to leased.
    pub waiting: Sample,
    /// From leased to completed.
    pub running: Sample,
}

/// A sample of durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Number of durations in the sample.
    pub count: u64,
    /// Their mean, in seconds.
    pub mean_seconds: f64,
    /// Their standard deviation, in seconds.
    pub deviation_seconds: f64,
    /// Bins that are not empty: number and count. Bins 0 to 59 are seconds, 60 to 118 minutes from
    /// 1, 119 to 141 hours from 1, 142 to 147 days from 1.
    pub histogram: Vec<(u32, u64)>,
}

/// A worker as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Name of the worker.
    pub worker: String,
    /// Last sign of life.
    pub seen_at: SystemTime,
    /// Jobs that the worker holds a lease on.
    pub holds: Vec<HeldJob>,
}

/// A job that a worker holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldJob {
    /// Id of the job.
    pub job: String,
    /// Where it lined up.
    pub queue: String,
    /// Kind of the job: the program that runs it.
    pub kind: String,
    /// Time at which the job was leased.
    pub leased_at: SystemTime,
}

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
