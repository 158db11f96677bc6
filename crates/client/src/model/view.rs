//! Listings, explanations, graphs, inputs, logs, changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use bytes::Bytes;

use super::{FailurePolicy, JobState, Start};

/// Conditions on jobs; all that are given must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// Queue that the jobs are in; `None`: any.
    pub queue: Option<String>,
    /// In one of these states; none: any.
    pub states: Vec<JobState>,
    /// Kind of the jobs; `None`: any.
    pub kind: Option<String>,
    /// Tag that the jobs bear; `None`: any.
    pub tag: Option<String>,
    /// Label, key and value, that the jobs bear; `None`: any.
    pub label: Option<(String, String)>,
    /// Graph that the jobs belong to; `None`: any.
    pub graph: Option<String>,
    /// Schedule that made the jobs; `None`: any.
    pub schedule: Option<String>,
    /// Failed in this group.
    pub group: Option<String>,
    /// Whose failure message contains this text.
    pub failure_text: Option<String>,
    /// Held by this worker.
    pub worker: Option<String>,
    /// Created at or after.
    pub created_from: Option<SystemTime>,
    /// Time before which the jobs were created; `None`: no bound.
    pub created_before: Option<SystemTime>,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
    /// [`Page::next`](super::Page::next) of the page before.
    pub cursor: Option<String>,
    /// At most so many, 1 to 1000; 0: 100.
    pub limit: u32,
    /// Whether to leave the histories out of the answer.
    pub brief: bool,
}

/// An input or dependency of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputView {
    /// Its slot; from 2^31 on it is a dependency without data.
    pub slot: u32,
    /// `value`, `missing`, `delivered`, `ignored`.
    pub state: String,
    /// The job it comes from; `None` for a value.
    pub dependency: Option<String>,
    /// What the dependency's failure means.
    pub policy: FailurePolicy,
    /// The value, or the dependency's result if asked for.
    pub value: Option<Bytes>,
}

impl InputView {
    /// Position among the inputs, from 0; `None` for a dependency without data.
    pub fn position(&self) -> Option<u32> {
        (self.slot < ganger_types::InputRow::EDGE_FIRST).then_some(self.slot)
    }
}

/// Bytes of an attempt's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// Number of the attempt.
    pub attempt: u32,
    /// Bytes of that attempt's log before this.
    pub offset: u64,
    /// When it was written.
    pub at: SystemTime,
    /// Bytes of the log.
    pub bytes: Bytes,
}

/// A place in a job's log: the start by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Number of the attempt.
    pub attempt: u32,
    /// Bytes of it that came before.
    pub offset: u64,
}

/// A piece of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// Pieces of the log, in order.
    pub chunks: Vec<LogChunk>,
    /// Where to go on.
    pub next: LogPosition,
    /// Whether the job has ended and this is all.
    pub end: bool,
}

/// Changes to a job; what is `None` or empty stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alteration {
    /// New priority; smaller runs first.
    pub priority: Option<i64>,
    /// New queue, for a job that does not run.
    pub queue: Option<String>,
    /// New start, for a job that is scheduled or ready.
    pub start: Option<Start>,
    /// New payload, for a job that does not run.
    pub payload: Option<Bytes>,
    /// Tags to put on.
    pub tags_added: Vec<String>,
    /// Tags to take off.
    pub tags_removed: Vec<String>,
    /// Labels to set, as key and value.
    pub labels_set: Vec<(String, String)>,
    /// Keys of labels to take off; those that are not there are passed over.
    pub labels_removed: Vec<String>,
    /// Whether to follow it.
    pub tracked: Option<bool>,
    /// A line for its history: headline, and JSON text or nothing.
    pub note: Option<(String, String)>,
}

/// How many were changed, and the ids that were not there or not in a state for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeResult {
    /// Number of jobs that were changed.
    pub count: u64,
    /// Ids that do not exist or whose state does not allow the change.
    pub skipped: Vec<String>,
    /// Of a retry with dependents: the jobs put back that were not named.
    pub dependents: Vec<String>,
    /// Of a retry with dependents or of a graph: the shards that will put back jobs of theirs, at once or when they can
    /// be reached.
    pub passed_on: BTreeSet<String>,
}

impl ChangeResult {
    /// Counts in what became of others.
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.skipped.extend(other.skipped);
        self.dependents.extend(other.dependents);
        self.passed_on.extend(other.passed_on);
    }
}

/// What to do with the jobs that fulfil a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkAction {
    /// Cancel the jobs that match.
    Cancel {
        /// Reason of the cancellation, for people.
        reason: String,
    },
    /// Put them back on their queues.
    Retry {
        /// Into another queue than their own.
        queue: Option<String>,
        /// With the jobs that ended because these did.
        dependents: bool,
    },
    /// Remove the jobs that match.
    Delete,
}

/// What one call of a bulk action did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BulkResult {
    /// Jobs changed, or that would be.
    pub changed: u64,
    /// Jobs that were not in a state for it.
    pub skipped: u64,
    /// The first 100 of those, as `shard/id`.
    pub skipped_jobs: Vec<String>,
    /// Of a dry run: jobs that would be changed, by state.
    pub by_state: BTreeMap<String, u64>,
    /// Of a dry run: those by queue, the first 100 queues.
    pub by_queue: BTreeMap<String, u64>,
    /// Of a dry run: the first 100 of those, as `shard/id`.
    pub sample: Vec<String>,
    /// For [`JobFilter::cursor`] of the next call; `None`: all were looked at.
    pub next: Option<String>,
    /// Of a retry with dependents: the shards that will put back jobs of theirs, at once or when they can be reached.
    pub passed_on: BTreeSet<String>,
    /// Of a dry run: whether exactly these would change; else jobs that depend on them may stand in the way.
    pub exact: bool,
    /// Of a dry run: number of jobs that would be changed in further queues.
    pub other_queues: u64,
    /// Of a dry run: time for which it holds.
    pub as_of: Option<SystemTime>,
}
