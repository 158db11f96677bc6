//! What the owner of a shard needs of its database, statement by statement.
//!
//! The rules (`claim.rs`, `store.rs`, `shared.rs`, `rows.rs`) are written against these traits. `postgres.rs` is
//! PostgreSQL behind them; the simulator has a model of it, and so runs the same rules.

use std::sync::{Arc, Mutex, MutexGuard};

use ganger_store::{Loaded, Reader, StoreHold};
use ganger_types::Commit;

use crate::durability::Durability;
use crate::fault::Fault;
use crate::fence::{Fence, Ownership};
use crate::header::Header;
use crate::limits::Limits;
use crate::log::Target;
use crate::record::Place;
use crate::shared::Shared;

/// One shard in its database, as the process sees it that owns the shard or wants to.
pub trait Backend: Send + Sync + Sized + 'static {
    /// A connection that takes the shard over.
    type Claiming: ClaimTables;
    /// A connection that appends to the log.
    type Appending: LogTables;
    /// A connection that writes rows.
    type Writing: RowTables;
    /// A reader of the shard.
    type Reader: Reader;

    /// The shard and its database in words.
    fn label(&self) -> &str;

    /// Number of the shard in its database.
    fn number(&self) -> u32;

    /// When rows are written behind the log.
    fn limits(&self) -> Limits;

    /// Returns how often another server has taken the place of the one that was used before. A connection notes its
    /// server before anything is read there.
    fn server(&self) -> u64;

    /// Returns a name for this store that no other store has, nor one of an earlier process.
    ///
    /// # Errors
    /// If the system has no random bytes.
    fn new_owner(&self) -> Result<String, Fault>;

    /// Connects to take the shard over.
    ///
    /// # Errors
    /// If the database cannot be reached, or does not keep what the store promises.
    fn claiming(&self) -> Result<Self::Claiming, Fault>;

    /// Connects to append to the log as this owner.
    ///
    /// # Errors
    /// As [`Backend::claiming`].
    fn appending(&self, ours: &Ownership) -> Result<Self::Appending, Fault>;

    /// Connects to write rows as this owner.
    ///
    /// # Errors
    /// As [`Backend::claiming`].
    fn writing(&self, ours: &Ownership) -> Result<Self::Writing, Fault>;

    /// What holds up its commits; `None` if it cannot tell.
    fn hold(&self) -> Option<StoreHold> {
        None
    }

    /// Tries something again while the database cannot be reached, for a bounded time.
    ///
    /// # Errors
    /// The last one of `attempt`.
    fn outlast<T>(&self, attempt: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault>;

    /// Locks what another thread of this store may hold while it waits for the database.
    ///
    /// # Panics
    /// If a thread has panicked with it.
    fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        mutex.lock().expect("a store that broke is not used again")
    }

    /// Passes all rows that the engine needs to `each`, in the order of [`Loaded`]. The rows are as `header` says.
    ///
    /// # Errors
    /// If a row is damaged, or the database cannot be reached.
    fn load(&self, header: &Header, each: &mut dyn FnMut(Loaded)) -> Result<(), Fault>;

    /// Creates a reader.
    ///
    /// # Errors
    /// If the database cannot be reached.
    fn reader(shared: &Arc<Shared<Self>>) -> Result<Self::Reader, Fault>;
}

/// Time that a statement of a claim waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// The time after which the sessions of the last owner are ended.
    Owner,
    /// The time after that.
    Last,
}

/// A row of the fence. Commits lock the one, transactions that write rows the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceRow {
    /// The row that commits lock.
    Log,
    /// The row that is locked while rows are written.
    Rows,
}

/// The end of a log table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlotEnd {
    /// Sequence of its last record; `None` if it is empty.
    pub last: Option<u64>,
    /// Size of the table in bytes.
    pub bytes: u64,
    /// Seconds since the last record was inserted, by the clock of the database; `None` if the table is empty.
    pub age: Option<f64>,
}

/// A connection that takes a shard over, in one transaction.
pub trait ClaimTables {
    /// What the settings of the database promise.
    fn durability(&self) -> Durability;

    /// Begins a transaction whose statements wait this long for a lock.
    ///
    /// # Errors
    /// As every statement here: [`Fault::Lost`] if it is not known what became of it.
    fn begin(&mut self, wait: LockWait) -> Result<(), Fault>;

    /// Locks the row `log` of the fence against every other lock, and returns its newest version; `None` if it is
    /// missing.
    ///
    /// # Errors
    /// As above; and if the wait was too long.
    fn lock_fence(&mut self) -> Result<Option<Fence>, Fault>;

    /// Writes a row of the fence; returns the number of rows that it changed.
    ///
    /// # Errors
    /// As above.
    fn write_fence(&mut self, row: FenceRow, epoch: u64, owner: &str) -> Result<u64, Fault>;

    /// Writes the state of the shard in both rows of the fence: `open`, or why nobody may own it.
    ///
    /// # Errors
    /// As above.
    fn write_state(&mut self, state: &str) -> Result<(), Fault>;

    /// Returns the sequence of the last commit whose rows are written, and the sealed header; `None` if it is missing.
    ///
    /// # Errors
    /// As above.
    fn checkpoint(&mut self) -> Result<Option<(u64, Vec<u8>)>, Fault>;

    /// Returns where each log table ends, in order, in a snapshot that is newer than the locks.
    ///
    /// # Errors
    /// As above.
    fn ends(&mut self) -> Result<Vec<SlotEnd>, Fault>;

    /// Commits the transaction, and waits until that is as durable as the settings promise.
    ///
    /// # Errors
    /// As above.
    fn commit(&mut self) -> Result<(), Fault>;

    /// Rolls the transaction back.
    ///
    /// # Errors
    /// As above.
    fn rollback(&mut self) -> Result<(), Fault>;

    /// Returns the first warning since the last call.
    fn take_warning(&mut self) -> Option<String>;

    /// Ends the sessions of the owner whose epoch is in the fence.
    ///
    /// # Errors
    /// As above.
    fn end_owner(&mut self) -> Result<(), Fault>;
}

/// A connection that appends to the log. Each statement is a transaction.
pub trait LogTables: Send {
    /// What the settings of the database promise.
    fn durability(&self) -> Durability;

    /// Whether the connection has not been seen to end.
    fn is_alive(&mut self) -> bool;

    /// Appends a record, if its epoch owns the shard and the record before it is there; returns the number of records
    /// appended.
    ///
    /// # Errors
    /// If the statement is refused; [`Fault::Lost`] if it is not known what became of it.
    fn append(&mut self, target: Target, place: Place, body: &[u8]) -> Result<u64, Fault>;

    /// Reads the row `log` of the fence; `None` if it is missing.
    ///
    /// # Errors
    /// As above.
    fn fence(&mut self) -> Result<Option<Fence>, Fault>;

    /// Returns the first warning since the last call.
    fn take_warning(&mut self) -> Option<String>;
}

/// What a transaction writes beside the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowWrite {
    /// The commits are in the log. Losing the checkpoint in a crash loses nothing.
    Behind {
        /// Table that has their last record.
        slot: usize,
    },
    /// The commit is not in the log: an empty record of it goes there.
    AtOnce {
        /// Table of that record.
        target: Target,
        /// Place of that record.
        place: Place,
    },
}

/// A record as it is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Sequence of the commit.
    pub sequence: u64,
    /// Epoch in which it was appended.
    pub epoch: u64,
    /// Sealed bytes of the record.
    pub body: Vec<u8>,
}

/// A connection that writes rows.
pub trait RowTables: Send {
    /// Whether the connection has not been seen to end.
    fn is_alive(&mut self) -> bool;

    /// Returns the sequence of the last commit whose rows are written, and the sealed header; `None` if it is missing.
    /// Reads what else must be known of the tables to write them.
    ///
    /// # Errors
    /// If the statement is refused; [`Fault::Lost`] if it is not known what became of it.
    fn read_tables(&mut self) -> Result<Option<(u64, Vec<u8>)>, Fault>;

    /// Returns the sequence of the last commit whose rows are written; `None` if it is missing.
    ///
    /// # Errors
    /// As above.
    fn written(&mut self) -> Result<Option<u64>, Fault>;

    /// Reads the row `log` of the fence; `None` if it is missing.
    ///
    /// # Errors
    /// As above.
    fn fence(&mut self) -> Result<Option<Fence>, Fault>;

    /// Writes the rows of consecutive commits in one transaction, if this epoch owns the shard and the rows are as
    /// `before` says; returns the new header.
    ///
    /// # Errors
    /// As above.
    fn write(
        &mut self,
        commits: &[Arc<Commit>],
        write: RowWrite,
        before: &Header,
    ) -> Result<Header, Fault>;

    /// Reads some records after a sequence, in order.
    ///
    /// # Errors
    /// As above.
    fn records(&mut self, after: u64) -> Result<Vec<LogRecord>, Fault>;

    /// Empties a log table if this epoch owns the shard and the rows of all its records are written; returns whether
    /// it is empty now.
    ///
    /// # Errors
    /// As above; and if somebody else holds the table.
    fn empty(&mut self, slot: usize) -> Result<bool, Fault>;

    /// Drops the tables of the oldest range of jobs, if nothing is in them.
    ///
    /// # Errors
    /// As above.
    fn drop_oldest_part(&mut self) -> Result<(), Fault>;

    /// Returns the first warning since the last call.
    fn take_warning(&mut self) -> Option<String>;
}
