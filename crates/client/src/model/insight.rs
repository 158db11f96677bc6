//! Tracked jobs, event filters, and the state of the server.

use std::time::{Duration, SystemTime};

use super::{Event, Grant, Job};

/// A job id that is tracked.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackedJob {
    /// Id of the job.
    pub job: String,
    /// Time since which the job is tracked.
    pub since: SystemTime,
    /// The job in its current state; `None` if it was removed.
    pub view: Option<Job>,
}

/// Which jobs and which time a series or a distribution is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesFilter {
    /// Queue of the jobs; `None` for all queues.
    pub queue: Option<String>,
    /// Kind of the jobs; `None` for every kind. Ignored by [`Client::kinds`](crate::Client::kinds).
    pub kind: Option<String>,
    /// Beginning of the time; `None` for an hour ago.
    pub from: Option<SystemTime>,
    /// End of the time; `None` for now.
    pub to: Option<SystemTime>,
}

/// What a series has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesOptions {
    /// Length of the steps in seconds: 10 (kept for 1 h), 60 (24 h) or 3600 (31 days); 0 for the shortest that fits.
    pub step_seconds: u32,
    /// Names of the metrics, such as `succeeded`; empty for all.
    pub metrics: Vec<String>,
    /// Whether to add all queues up, instead of a line for each.
    pub is_total: bool,
}

/// What names stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamesOf {
    /// Queues that jobs or settings name.
    Queue,
    /// Kinds of which an attempt started lately.
    Kind,
    /// Tags that a kept job has.
    Tag,
    /// Workers that are registered now.
    Worker,
    /// Schedules, paused ones too.
    Schedule,
    /// Graphs that have kept jobs.
    Graph,
    /// Groups of failures of one kind, by their names.
    Group,
}

/// How fast a queue, or all queues together, fill and empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueRates {
    /// Number of jobs enqueued in the last full minute.
    pub enqueued: u64,
    /// Number of jobs that succeeded in the last full minute.
    pub succeeded: u64,
    /// Number of jobs that failed in the last full minute.
    pub failed: u64,
    /// Number of jobs that ended in each of the last 10 minutes, oldest first.
    pub ended_by_minute: Vec<u64>,
    /// Time that 95 of 100 attempts of the last 10 minutes did not exceed; `None` if none ended.
    pub run_p95: Option<Duration>,
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
    /// Reason why the server is not ready; empty if it is.
    pub reason: String,
    /// Time at which the server was started.
    pub uptime: Duration,
    /// Whether the server is about to stop.
    pub draining: bool,
    /// Number of jobs that have not ended.
    pub live_jobs: u64,
    /// Shards that the server knows by name, its own included.
    pub shards: Vec<String>,
}

/// The caller, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhoAmI {
    /// Name of the caller, such as `token "ci"` or `anyone`.
    pub who: String,
    /// What the caller may do in the namespace: some of `observe`, `submit`, `cancel`, `work`, `operate`, `govern`.
    pub may: Vec<String>,
    /// Time from which the credential is no longer known; `None` if it does not expire.
    pub expires_at: Option<SystemTime>,
    /// Roles and the namespaces in which they are granted.
    pub grants: Vec<Grant>,
    /// Whether no role of the caller changes anything.
    pub read_only: bool,
}

/// Conditions on records of the audit log; a record must meet all that are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Text that the caller's name contains; `None`: any.
    pub who: Option<String>,
    /// Name of the operation, such as `cancelJob` or `ganger.v1.Jobs/Cancel`; `None`: any.
    pub what: Option<String>,
    /// How it ended: `done`, `refused` or `denied`; `None`: any.
    pub outcome: Option<String>,
    /// `next` of the page before; `None`: from the newest record on.
    pub after: Option<String>,
    /// Maximum number of records, 1 to 1,000; 0: 100.
    pub limit: u32,
}

/// Events that were read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastEvents {
    /// The events, the newest first.
    pub events: Vec<Event>,
    /// Position of the oldest event that is kept.
    pub oldest: u64,
    /// Position behind the newest event; [`EventFilter::after`] this number less one goes on without a gap.
    pub end: u64,
    /// Position before which the next page begins; `None` if nothing older is kept.
    pub next: Option<u64>,
}

/// Conditions on events to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Position after which events are sent; `None` for new events only.
    pub after: Option<u64>,
    /// Jobs whose events are sent; empty for all jobs.
    pub jobs: Vec<String>,
    /// Queues whose events are sent; empty for all queues.
    pub queues: Vec<String>,
    /// Whether to omit events about progress and logs.
    pub moves_only: bool,
}
