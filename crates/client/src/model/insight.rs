//! Tracked jobs, filters of events, the server itself.

use std::time::{Duration, SystemTime};

use super::Job;

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
