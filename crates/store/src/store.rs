//! The writing side of a store: the trait that each store implements.

use std::sync::Arc;
use std::time::Duration;

use ganger_types::IdempotencyRecord;
use ganger_types::change::UniqueRecord;
use ganger_types::{
    AuditRecord, Commit, Day, Dependent, Epoch, ExternalRow, Group, InputRow, JobId, JobKey,
    JobRecord, LeaseRecord, Meta, Namespace, NamespaceRecord, OperationRecord, OutboxRecord,
    PartRecord, PeerRecord, QueueRecord, ScheduleRecord, StatisticsRecord, Tag, Timestamp,
};

use crate::error::{CommitError, StoreError};
use crate::hold::StoreHold;
use crate::log_state::LogState;
use crate::reader::Reader;

/// A row that the engine loads at its start.
///
/// Rows come in the order of the variants: jobs by number, messages to each peer by number, and dependents after
/// their jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum Loaded {
    /// The record of a namespace.
    Namespace(Box<NamespaceRecord>),
    /// The record of a queue.
    Queue(Box<QueueRecord>),
    /// The record of a schedule.
    Schedule(Box<ScheduleRecord>),
    /// The record of a live job.
    Job(Box<JobRecord>),
    /// An input of a live job that is missing or delivered. Inputs that need nothing more are not loaded: values,
    /// received results, ignored ones.
    Input(InputRow),
    /// The record of a live lease.
    Lease(Box<LeaseRecord>),
    /// The record of a unique key.
    Unique(Box<UniqueRecord>),
    /// The record of an idempotency key.
    IdempotencyRecord(Box<IdempotencyRecord>),
    /// The number of jobs with a tag.
    TagCount(Namespace, Tag, u64),
    /// The number of kept jobs that failed in a group.
    GroupCount(Namespace, Group, u64),
    /// A tracked job id and the time at which tracking began.
    Tracked(Namespace, JobId, Timestamp),
    /// The statistics of a queue and day, from the day before the last commit on (`statistics_loaded_from`).
    Statistics(Box<StatisticsRecord>),
    /// An operation, in order of their numbers.
    Operation(Box<OperationRecord>),
    /// A record of the audit log, in order of their numbers.
    Audit(Box<AuditRecord>),
    /// The record of another shard.
    Peer(Box<PeerRecord>),
    /// A message to another shard that it has not confirmed.
    Outbox(Box<OutboxRecord>),
    /// The part of a submission over several shards. `Reader::part` reads its jobs while it is undecided.
    Part(Box<PartRecord>),
    /// A job of another shard that waits for this one.
    Dependent(JobKey, Box<Dependent>),
    /// A row of an external system, in the order of [`ganger_types::external::ExternalRowKey`].
    External(ExternalRow),
}

/// The state of a store when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Epoch of this writer, which was raised durably.
    pub epoch: Epoch,
    /// Sequence of the last commit; 0 for a new store.
    pub sequence: u64,
    /// Counters and clocks of that commit.
    pub meta: Meta,
    /// Time since that commit by a clock that all owners of the store share; `None` if they share none, so that only
    /// the wall clock of this machine can tell.
    pub away: Option<Duration>,
}

/// The reserve: blocks of the device that a store allocates in advance and uses when the device is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Size of the reserve now, in bytes.
    pub held: u64,
    /// Intended size of the reserve in bytes; 0 for a store without one.
    pub wanted: u64,
    /// Whether writes on a full device have used the reserve since it was complete.
    pub is_open: bool,
}

impl Reserve {
    /// Whether the reserve has its intended size.
    pub fn is_whole(self) -> bool {
        self.held >= self.wanted
    }
}

/// The writing side of a store: one per store, on a thread of its own.
pub trait Store: Send + 'static {
    /// Type of the store's readers.
    type Reader: Reader;

    /// Opens the store and raises its epoch durably. A store that several processes can reach is taken over from
    /// its owner. Never called after [`CommitError::Unknown`]: see [`Store::take_back`].
    ///
    /// # Errors
    /// If the store cannot be read or written.
    fn open(&mut self) -> Result<Opened, StoreError>;

    /// Takes the store over after a commit with unknown outcome, if nobody else has since it was `ours`. Raises the
    /// epoch too: a write of the old one may still arrive. The outcome is known then: what the store has not now, it
    /// never gets.
    ///
    /// A store that only one process at a time can have is simply opened again.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if somebody else has taken it over; and if it cannot be read or written.
    fn take_back(&mut self, ours: Epoch) -> Result<Opened, StoreError> {
        let _ = ours;
        self.open()
    }

    /// Passes every row that the engine needs to `each`, in the order of [`Loaded`].
    ///
    /// # Errors
    /// If a record is damaged or cannot be read.
    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError>;

    /// Applies a commit durably and completely, or not at all. Its sequence must be that of the last commit plus one.
    ///
    /// The commit is shared, because a store may hold it until it has written all rows.
    ///
    /// # Errors
    /// See [`CommitError`].
    fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError>;

    /// Starts a commit, as [`Store::commit`] does it. `Some`: it has ended. `None`: [`Store::finished`] returns later
    /// how it ended, and the next commit may be started meanwhile. By default a commit ends before this returns.
    ///
    /// A commit that follows one that failed fails too.
    fn begin(&mut self, commit: &Arc<Commit>) -> Option<Result<(), CommitError>> {
        Some(self.commit(commit))
    }

    /// Waits for the end of the oldest commit for which [`Store::begin`] returned `None`; returns its sequence and
    /// how it ended, each once and in order. `None` if no started commit is left, or a simulated one has not ended.
    fn finished(&mut self) -> Option<(u64, Result<(), CommitError>)> {
        None
    }

    /// Whether the store is on another machine, or in another process: it may take any time to answer, so the shard's
    /// own thread neither commits nor reads.
    fn is_remote(&self) -> bool {
        false
    }

    /// What holds up commits at times, for example a standby that is missing; `None` if the store cannot tell.
    fn hold(&self) -> Option<StoreHold> {
        None
    }

    /// Creates a reader, for any thread.
    ///
    /// # Errors
    /// If the store cannot be opened.
    fn reader(&self) -> Result<Self::Reader, StoreError>;

    /// Number of flushes to the device that the store has ordered since it was made, those of its upkeep too; 0 if it
    /// orders none. Cheap: it is asked for after every commit.
    fn flushes(&self) -> u64 {
        0
    }

    /// Size of the store's files in bytes; `None` if the store has no files.
    fn size_bytes(&self) -> Option<u64> {
        None
    }

    /// The log in front of the rows, as it is now. Cheap: upkeep asks for it.
    fn log_state(&self) -> LogState {
        LogState::default()
    }

    /// Free space on the device in bytes; `None` if the store is not on a device.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Fills the reserve if there is space, and returns it.
    fn keep_reserve(&mut self) -> Reserve {
        self.reserve()
    }

    /// The reserve as it is. This is cheap: the shard asks after every commit.
    fn reserve(&self) -> Reserve {
        Reserve::default()
    }

    /// Does a limited amount of upkeep while the store is idle, such as checkpoints and reclaiming space.
    ///
    /// # Errors
    /// If the store cannot be written.
    fn idle(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The first day whose statistics are loaded at a start: the day before the last commit, which was at `wall`.
pub fn statistics_loaded_from(wall: Timestamp) -> Day {
    let day = wall.0 / (86_400 * ganger_types::time::MICROS_PER_SECOND);
    Day(u32::try_from(day).unwrap_or(u32::MAX).saturating_sub(1))
}
