//! The consequences that the cancellation of a job would have.

use crate::id::JobId;
use crate::job::JobState;

/// Number of jobs that each part of [`CancelEffects`] lists; further ones are only counted.
pub const LISTED_JOBS_MAX: usize = 100;

/// The consequences that the cancellation of one job would have for the jobs around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelEffects {
    /// State of the job now. A job that has ended would not change.
    pub state: JobState,
    /// Jobs that would be cancelled with it, because no job of their graph would need them any more.
    pub cancelled: AffectedJobs,
    /// Jobs that would fail, because they wait for a job that would be cancelled or fail.
    pub failed: AffectedJobs,
    /// Jobs that would wait until a job that would be cancelled or fail is retried.
    pub waiting: AffectedJobs,
    /// Jobs that would go on without a result of this one, because their dependency ignores that it did not succeed.
    pub continuing: AffectedJobs,
    /// Number of dependencies of jobs on other shards that would be notified.
    pub elsewhere: u64,
    /// Whether all consequences on this shard were found; otherwise the search ended at its limit, and the numbers are
    /// lower bounds.
    pub is_complete: bool,
}

/// Jobs that a command would affect in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedJobs {
    /// Number of the jobs.
    pub count: u64,
    /// Ids of the first of them by number, at most [`LISTED_JOBS_MAX`].
    pub jobs: Vec<JobId>,
}
