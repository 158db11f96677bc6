//! Where changes are kept: the `Store` trait, the record encoding, a memory store, one suite for all.
//!
//! A store applies the commits of one shard, in order, each whole or not at all, and gives them back:
//! to the engine at start (`Store::load`), to everyone else through readers that never stop the writer.

#![forbid(unsafe_code)]

use ganger_types::command::{Retiree, RetireeQuery};
use ganger_types::job::LeaseRecord;
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Commit, Epoch, InputRow, JobId, JobKey, JobRecord, Meta, Namespace, NamespaceRecord,
    QueueRecord, ScheduleRecord, StatisticsRecord,
};
use ganger_types::change::{ClaimRecord, UniqueRecord};
use ganger_types::{Group, Tag, Timestamp};

/// Why a commit did not take place, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing was written; the store goes on. The shard reloads the engine and may try new work.
    #[error("not written: {reason}")]
    NotApplied {
        /// Such as "disk full".
        reason: String,
        /// Whether it was for lack of space.
        is_full: bool,
    },
    /// A newer epoch owns the store: the shard must stop.
    #[error("epoch {ours:?} has been replaced by {theirs:?}: another process owns this store")]
    Fenced {
        /// Of this writer.
        ours: Epoch,
        /// Of the owner.
        theirs: Epoch,
    },
    /// Whether it was written is not known: reopen the store and compare the sequence (`rel D6`).
    #[error("outcome unknown: {0}")]
    Unknown(String),
}

/// Why a store could not be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open (`rel D11`).
    #[error("the store {path} is in use by another process{holder}: stop that one first")]
    InUse {
        /// Where.
        path: String,
        /// Its process id if known, such as ` (pid 123)`.
        holder: String,
    },
    /// Damage was found before the data was used (`rel D8`).
    #[error("the store {path} is damaged: {what}; run `ganger check {path}` to see all of it")]
    Damaged {
        /// Where.
        path: String,
        /// Which table, row, and what is affected.
        what: String,
    },
    /// It was written by a newer version (`rel D14`).
    #[error("the store {path} has format {found}, this program knows up to {known}: use a newer ganger")]
    TooNew {
        /// Where.
        path: String,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// It belongs to another shard.
    #[error("the store {path} belongs to shard {found}, not {wanted}: give the right --shard or another --db")]
    OtherShard {
        /// Where.
        path: String,
        /// Whose it is.
        found: String,
        /// Who asked.
        wanted: String,
    },
    /// The system refused.
    #[error("the store {path} cannot be {doing}: {reason}")]
    Io {
        /// Where.
        path: String,
        /// Such as `opened`, `read`.
        doing: &'static str,
        /// The system's words.
        reason: String,
    },
}

/// One row given back at start. Order: namespaces, queues, schedules, jobs by key, inputs, leases, rest.
#[derive(Clone, Debug, PartialEq)]
pub enum Loaded {
    /// A namespace.
    Namespace(Box<NamespaceRecord>),
    /// A queue.
    Queue(Box<QueueRecord>),
    /// A schedule.
    Schedule(Box<ScheduleRecord>),
    /// A live job.
    Job(Box<JobRecord>),
    /// An input of a live job that is missing or delivered (values and ignored ones are not loaded).
    Input(InputRow),
    /// A lease.
    Lease(Box<LeaseRecord>),
    /// A unique key.
    Unique(Box<UniqueRecord>),
    /// An idempotency key.
    Claim(Box<ClaimRecord>),
    /// Bearers of a tag.
    TagCount(Namespace, Tag, u64),
    /// Failed jobs of a group.
    GroupCount(Namespace, Group, u64),
    /// A tracked id.
    Tracked(Namespace, JobId, Timestamp),
    /// Statistics of a queue and day: today's and yesterday's are loaded, older ones stay in the store.
    Statistics(Box<StatisticsRecord>),
}

/// What a store was when it was opened: the epoch is already raised, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Ours from now on.
    pub epoch: Epoch,
    /// Sequence of the last commit; 0 for a new store.
    pub sequence: u64,
    /// As of that commit.
    pub meta: Meta,
}

/// The writing side: one per store, on a thread of its own.
pub trait Store: Send + 'static {
    /// Its readers.
    type Reader: Reader;

    /// Takes the store over: raises the epoch durably, and says where it stands. Also after `Unknown`.
    ///
    /// # Errors
    /// If it cannot be read or written.
    fn open(&mut self) -> Result<Opened, StoreError>;

    /// Gives every row back that the engine needs, in the order of [`Loaded`].
    ///
    /// # Errors
    /// If a record is damaged or cannot be read.
    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError>;

    /// Applies a commit whole and durably, or not at all. Its sequence must be the last one's plus one.
    ///
    /// # Errors
    /// See [`CommitError`].
    fn commit(&mut self, commit: &Commit) -> Result<(), CommitError>;

    /// A new reader, for any thread.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn reader(&self) -> Result<Self::Reader, StoreError>;

    /// Free bytes on the device, if that means anything here.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Upkeep while nothing waits, in a bounded slice: checkpoints, reclaiming space.
    ///
    /// # Errors
    /// If it cannot be written.
    fn idle(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A job as the store shows it: the record, and the lease if one is live. With a lease the state
/// shown is `Running`, and `attempt` is the lease's.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredJob {
    /// The record.
    pub record: JobRecord,
    /// The lease.
    pub lease: Option<LeaseRecord>,
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<StoredJob>,
    /// Give this as `after` for the next page; `None`: there is none.
    pub next: Option<JobKey>,
}

/// A piece of an attempt's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// Which attempt.
    pub attempt: u32,
    /// Bytes of that attempt's log before this.
    pub offset: u64,
    /// When it was written.
    pub at: Timestamp,
    /// The bytes.
    pub bytes: Bytes,
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

    /// A job's payload.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn payload(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError>;

    /// A job's inputs and dependencies in order of slots, at most `limit` from `from` on.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn inputs(&mut self, key: JobKey, from: u32, limit: usize) -> Result<Vec<InputRow>, StoreError>;

    /// The jobs that have this one among their inputs or dependencies, at most `limit`.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn dependents(&mut self, key: JobKey, limit: usize) -> Result<Vec<JobKey>, StoreError>;

    /// A finished job's result.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn result(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError>;

    /// A job's log in order of attempt and offset, after the given place, at most about `bytes` bytes.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn log(
        &mut self,
        key: JobKey,
        after: (u32, u64),
        bytes: usize,
    ) -> Result<Vec<LogChunk>, StoreError>;

    /// Finished jobs that may have outlived their retention, at most `limit`.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn retirees(&mut self, query: &RetireeQuery, limit: usize) -> Result<Vec<Retiree>, StoreError>;

    /// Statistics of a queue and a day, if any are stored.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn statistics(
        &mut self,
        namespace: &Namespace,
        queue: &ganger_types::Queue,
        day: ganger_types::Day,
    ) -> Result<Option<StatisticsRecord>, StoreError>;
}
