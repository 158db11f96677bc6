//! The writing side of a store: the trait that each store implements.

use std::sync::Arc;

use ganger_types::IdempotencyRecord;
use ganger_types::change::UniqueRecord;
use ganger_types::{
    Commit, Day, Dependent, Epoch, ExternalRow, Group, InputRow, JobId, JobKey, JobRecord,
    LeaseRecord, Meta, Namespace, NamespaceRecord, OutboxRecord, PartRecord, PeerRecord,
    QueueRecord, ScheduleRecord, StatisticsRecord, Tag, Timestamp,
};

use crate::error::{CommitError, StoreError};
use crate::reader::Reader;

/// One row given back at start.
///
/// Order: namespaces, queues, schedules, jobs by key, inputs, leases, then the rest in the order of the variants:
/// among it the peers, the messages to each of them by number, the parts, and the dependents after their jobs.
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
    /// An input of a live job that is missing, here or on another shard, or delivered. Those that need nothing
    /// more are not loaded: values, received results, ignored ones.
    Input(InputRow),
    /// The record of a live lease.
    Lease(Box<LeaseRecord>),
    /// The record of a unique key.
    Unique(Box<UniqueRecord>),
    /// The record of an idempotency key.
    IdempotencyRecord(Box<IdempotencyRecord>),
    /// Bearers of a tag.
    TagCount(Namespace, Tag, u64),
    /// Failed jobs of a group.
    GroupCount(Namespace, Group, u64),
    /// A tracked job id and the time at which tracking began.
    Tracked(Namespace, JobId, Timestamp),
    /// Statistics of a queue and day: from the day before the last commit on (`statistics_loaded_from`).
    Statistics(Box<StatisticsRecord>),
    /// What is known of another shard.
    Peer(Box<PeerRecord>),
    /// A message to another shard that it has not confirmed.
    Outbox(Box<OutboxRecord>),
    /// A submission of which a part is here. Its jobs, before it is decided, are read by `Reader::part`.
    Part(Box<PartRecord>),
    /// A job of another shard that waits for this one.
    Dependent(JobKey, Box<Dependent>),
    /// A row of an external system; in the order of the tables in [`ganger_types::external::ExternalRowKey`].
    External(ExternalRow),
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

/// Blocks of the device that a store has taken in time, and gives back to itself when the device is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Bytes that are taken now.
    pub held: u64,
    /// Bytes that are taken while there is room; 0 for a store that keeps none.
    pub wanted: u64,
    /// Whether writes that found no room have drawn on it since it was whole.
    pub is_open: bool,
}

impl Reserve {
    /// Whether all of it is there.
    pub fn is_whole(self) -> bool {
        self.held >= self.wanted
    }
}

/// The writing side: one per store, on a thread of its own.
pub trait Store: Send + 'static {
    /// Type of the store's readers.
    type Reader: Reader;

    /// Takes the store over: raises the epoch durably, and says where it stands. Also after `Unknown`.
    ///
    /// # Errors
    /// If it cannot be read or written.
    fn open(&mut self) -> Result<Opened, StoreError>;

    /// Takes the store over after a commit with unknown outcome, if nobody else has since it was `ours`. Raises the
    /// epoch too: a write of the old one may still arrive.
    ///
    /// A store that only one process at a time can have is simply opened again.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if somebody else has taken it over; and if it cannot be read or written.
    fn take_back(&mut self, ours: Epoch) -> Result<Opened, StoreError> {
        let _ = ours;
        self.open()
    }

    /// Gives every row back that the engine needs, in the order of [`Loaded`].
    ///
    /// # Errors
    /// If a record is damaged or cannot be read.
    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError>;

    /// Applies a commit whole and durably, or not at all. Its sequence must be the last one's plus one.
    ///
    /// It is shared, since a store may keep it for a while: until it is written where it belongs.
    ///
    /// # Errors
    /// See [`CommitError`].
    fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError>;

    /// A new reader, for any thread.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn reader(&self) -> Result<Self::Reader, StoreError>;

    /// Free bytes on the device, if that means anything here.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// The blocks kept on the device for what goes on when it is full; filled again if there is room for it now.
    fn keep_reserve(&mut self) -> Reserve {
        self.reserve()
    }

    /// Likewise, as it is. Cheap: it is asked for after every commit.
    fn reserve(&self) -> Reserve {
        Reserve::default()
    }

    /// Upkeep while nothing waits, in a bounded slice: checkpoints, reclaiming space.
    ///
    /// # Errors
    /// If it cannot be written.
    fn idle(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The first day whose statistics are loaded at start: the one before the last commit's, which was
/// made at `wall`.
pub fn statistics_loaded_from(wall: Timestamp) -> Day {
    let day = wall.0 / (86_400 * ganger_types::time::MICROS_PER_SECOND);
    Day(u32::try_from(day).unwrap_or(u32::MAX).saturating_sub(1))
}
