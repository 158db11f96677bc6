//! The reading side of a store: records, listings, logs, from committed state only.

use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Day, Graph, InputRow, JobId, JobKey, Namespace, Part, Queue, StatisticsRecord,
    StoredJob, Timestamp,
};

use crate::error::StoreError;

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The jobs of the page, in order.
    pub jobs: Vec<StoredJob>,
    /// Give this as `after` for the next page; `None`: there is none.
    pub next: Option<JobKey>,
}

/// A piece of an attempt's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// The attempt that wrote the log.
    pub attempt: u32,
    /// Bytes of that attempt's log before this.
    pub offset: u64,
    /// When it was written.
    pub at: Timestamp,
    /// The bytes of the piece.
    pub bytes: Bytes,
}

impl LogChunk {
    /// The part of it after a place, given as an attempt and the bytes of its log already known.
    #[must_use]
    pub fn after(mut self, (attempt, offset): (u32, u64)) -> Option<Self> {
        if self.attempt != attempt {
            return (self.attempt > attempt).then_some(self);
        }
        let known = usize::try_from(offset.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        if known >= self.bytes.len() {
            return None;
        }
        self.bytes = self.bytes.slice(known..);
        self.offset = self.offset.max(offset);
        Some(self)
    }
}

/// The reading side: committed state only, each call in a short transaction of its own.
/// Every record's checksum is verified before it is used (`rel D8`).
pub trait Reader: Send + 'static {
    /// The job with this number, live or finished.
    ///
    /// # Errors
    /// If it is damaged or cannot be read.
    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, StoreError>;

    /// The job with this id, given or made, live or finished.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn find(&mut self, namespace: &Namespace, id: &JobId) -> Result<Option<StoredJob>, StoreError>;

    /// A page of jobs, by number.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn list(&mut self, query: &JobQuery) -> Result<Page, StoreError>;

    /// How many jobs a query matches, wherever its page would begin and end. Each is counted where it stands when
    /// it is looked at, so one that ends meanwhile may be counted twice or not at all.
    ///
    /// Payloads are never read. Jobs that have ended are counted from an index, if nothing but their namespace, queue,
    /// states and one of tag, label, graph, schedule and group is asked for; so are all jobs with one of these five
    /// words, if nothing else is. For other questions, and for live jobs, the records of those jobs are looked at that
    /// [`Reader::list`] would look at.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn count(&mut self, query: &JobQuery) -> Result<u64, StoreError>;

    /// A job's payload.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn payload(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError>;

    /// A job's inputs and dependencies in order of slots, at most `limit` from `from` on.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn inputs(&mut self, key: JobKey, from: u32, limit: usize)
    -> Result<Vec<InputRow>, StoreError>;

    /// The jobs that have this one among their inputs or dependencies, by number, at most `limit`.
    /// Edges whose failure was ignored do not name their dependency any more; jobs of other shards are
    /// not among them.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn dependents(&mut self, key: JobKey, limit: usize) -> Result<Vec<JobKey>, StoreError>;

    /// A finished job's result.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn result(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError>;

    /// A job's log in order of attempt and offset, at most about `bytes` bytes. `after` is an attempt
    /// and how many bytes of its log are known already: (0, 0) starts at the beginning, and the end
    /// of the last chunk goes on behind it.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn log(
        &mut self,
        key: JobKey,
        after: (u32, u64),
        bytes: usize,
    ) -> Result<Vec<LogChunk>, StoreError>;

    /// Finished jobs that may have outlived their retention, oldest first, at most `limit`.
    /// Jobs with a life time of their own count among the `excess` but are not given for it.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn expired_jobs(
        &mut self,
        query: &ExpiredJobsQuery,
        limit: usize,
    ) -> Result<Vec<ExpiredJob>, StoreError>;

    /// Statistics of a queue and a day, if any are stored.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn statistics(
        &mut self,
        namespace: &Namespace,
        queue: &Queue,
        day: Day,
    ) -> Result<Option<StatisticsRecord>, StoreError>;

    /// A submission's part that is not decided, with its jobs; its record is as it is stored now.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn part(&mut self, namespace: &Namespace, graph: &Graph) -> Result<Option<Part>, StoreError>;
}
