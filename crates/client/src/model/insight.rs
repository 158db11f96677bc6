//! Tracked jobs, event filters, and the state of the server.

use std::time::{Duration, SystemTime};

use super::Job;

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
