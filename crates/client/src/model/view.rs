//! Job filters, inputs, logs, and changes of jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{FailurePolicy, JobState, Start};

/// Conditions on jobs, all of which must hold, and the page to return.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// Queue that the jobs are in; `None` for any.
    pub queue: Option<String>,
    /// States of the jobs; empty for any.
    pub states: Vec<JobState>,
    /// Kind of the jobs; `None` for any.
    pub kind: Option<String>,
    /// What the kinds of the jobs begin with; `None` for anything.
    pub kind_prefix: Option<String>,
    /// What the ids of the jobs begin with; `None` for anything.
    pub id_prefix: Option<String>,
    /// Tags that the jobs have, all of them, at most 16; empty for any.
    pub tags: Vec<String>,
    /// Labels, as keys and values, that the jobs have, all of them, at most 16; empty for any.
    pub labels: Vec<(String, String)>,
    /// Graph that the jobs belong to; `None` for any.
    pub graph: Option<String>,
    /// Schedule that enqueued the jobs; `None` for any.
    pub schedule: Option<String>,
    /// Failure group of the jobs' failures; `None` for any.
    pub group: Option<String>,
    /// Text that the failure messages contain; `None` for any.
    pub failure_text: Option<String>,
    /// Worker that holds the leases of the jobs; `None` for any.
    pub worker: Option<String>,
    /// Unique key of the jobs; `None` for any.
    pub unique_key: Option<String>,
    /// Whether the jobs are tracked; `None` for tracked or not.
    pub tracked: Option<bool>,
    /// Smallest number of attempts of the jobs; `None` for any.
    pub attempt_min: Option<u32>,
    /// Time at or after which the jobs were created; `None` for no bound.
    pub created_from: Option<SystemTime>,
    /// Time before which the jobs were created; `None` for no bound.
    pub created_before: Option<SystemTime>,
    /// Time at or after which the jobs ended; `None` for no bound.
    pub finished_from: Option<SystemTime>,
    /// Time before which the jobs ended; `None` for no bound.
    pub finished_before: Option<SystemTime>,
    /// Order of the jobs.
    pub order: JobOrder,
    /// Time to look, up to 10 s: then, or after 20,000 records, the page ends and says so. `None` for no limit.
    pub budget: Option<Duration>,
    /// [`Page::next`](super::Page::next) of the previous page; `None` for the first page.
    pub cursor: Option<String>,
    /// Maximum number of jobs, 1 to 1,000; 0 for 100.
    pub limit: u32,
    /// Whether to omit the histories.
    pub brief: bool,
    /// Whether to omit histories and retry policies (the jobs then have the default policy), and to cut failure messages
    /// at 200 bytes.
    pub summary: bool,
}

/// Order of a list of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobOrder {
    /// By creation, the oldest first.
    #[default]
    Oldest,
    /// By creation, the newest first.
    Newest,
    /// Jobs that have ended, the latest end first.
    FinishedNewest,
    /// The ready jobs of [`JobFilter::queue`], which must be given, as they will be leased.
    RunsNext,
}

/// An input or dependency of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputView {
    /// Slot of the input; a slot from 2^31 on is a dependency without data.
    pub slot: u32,
    /// State of the input: `value`, `missing`, `delivered` or `ignored`.
    pub state: String,
    /// Job whose result the input is; `None` for a value.
    pub dependency: Option<String>,
    /// What happens to the dependent if the dependency fails.
    pub policy: FailurePolicy,
    /// The value, or the dependency's result if it was requested; `None` if there is none.
    pub value: Option<Bytes>,
}

impl InputView {
    /// Returns the position among the inputs, from 0; `None` for a dependency without data.
    pub fn position(&self) -> Option<u32> {
        (self.slot < ganger_types::InputRow::EDGE_FIRST).then_some(self.slot)
    }
}

/// Bytes of an attempt's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// Number of the attempt.
    pub attempt: u32,
    /// Number of bytes of that attempt's log before this chunk.
    pub offset: u64,
    /// Time at which the chunk was written.
    pub at: SystemTime,
    /// Bytes of the log.
    pub bytes: Bytes,
}

/// A position in the log of a job. Default: the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Number of the attempt.
    pub attempt: u32,
    /// Number of bytes of that attempt's log before the position.
    pub offset: u64,
}

/// A page of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// Chunks of the log, in order.
    pub chunks: Vec<LogChunk>,
    /// Position of the next page.
    pub next: LogPosition,
    /// Whether the job has ended and this is the last page.
    pub end: bool,
}

/// Changes of a job; a field that is `None` or empty changes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alteration {
    /// New priority; smaller runs first.
    pub priority: Option<i64>,
    /// New queue; the job must not be running.
    pub queue: Option<String>,
    /// New earliest start; the job must be scheduled or ready.
    pub start: Option<Start>,
    /// New payload; the job must not be running.
    pub payload: Option<Bytes>,
    /// Tags to add to the job.
    pub tags_added: Vec<String>,
    /// Tags to remove from the job; absent ones are ignored.
    pub tags_removed: Vec<String>,
    /// Labels to set, as key and value.
    pub labels_set: Vec<(String, String)>,
    /// Keys of labels to remove; absent ones are ignored.
    pub labels_removed: Vec<String>,
    /// Whether the job is tracked; `None` to leave that as it is.
    pub tracked: Option<bool>,
    /// Entry to append to the history: a headline, and JSON text or an empty string.
    pub note: Option<(String, String)>,
}

/// The result of a change of named jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeResult {
    /// Number of changed jobs.
    pub count: u64,
    /// Ids that do not exist or whose state does not allow the change.
    pub skipped: Vec<String>,
    /// For a retry with dependents: the retried jobs that were not named.
    pub dependents: Vec<String>,
    /// For a retry with dependents or of a graph: other shards that retry jobs, at once or when they can be reached.
    pub passed_on: BTreeSet<String>,
}

impl ChangeResult {
    /// Adds the result of another call.
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.skipped.extend(other.skipped);
        self.dependents.extend(other.dependents);
        self.passed_on.extend(other.passed_on);
    }
}

/// An action on all jobs that match a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkAction {
    /// Cancel the jobs that match.
    Cancel {
        /// Reason of the cancellation, for people to read.
        reason: String,
    },
    /// Retry the jobs that match.
    Retry {
        /// Queue for the jobs; `None` for their own.
        queue: Option<String>,
        /// Whether to retry also the jobs that ended because of these.
        dependents: bool,
    },
    /// Remove the jobs that match.
    Delete,
}

/// The result of one call of a bulk action, or of its dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BulkResult {
    /// Number of jobs that were changed, or would be.
    pub changed: u64,
    /// Number of jobs whose state does not allow the action.
    pub skipped: u64,
    /// The first 100 skipped jobs, as `shard/id`.
    pub skipped_jobs: Vec<String>,
    /// For a dry run: number of jobs that would be changed, by state.
    pub by_state: BTreeMap<String, u64>,
    /// For a dry run: number of jobs that would be changed, by queue, for the first 100 queues.
    pub by_queue: BTreeMap<String, u64>,
    /// For a dry run: the first 100 jobs that would be changed, as `shard/id`.
    pub sample: Vec<String>,
    /// [`JobFilter::cursor`] of the next call; `None` if all jobs were examined.
    pub next: Option<String>,
    /// For a retry with dependents: other shards that retry jobs, at once or when they can be reached.
    pub passed_on: BTreeSet<String>,
    /// For a dry run: whether exactly these jobs would change; otherwise jobs that depend on them may prevent some
    /// changes.
    pub exact: bool,
    /// For a dry run: number of jobs that would be changed in queues beyond the first 100.
    pub other_queues: u64,
    /// For a dry run: time at which the counts were taken.
    pub as_of: Option<SystemTime>,
}
