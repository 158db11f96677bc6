//! The statements of the model, as the product's traits have them.

use std::sync::Arc;

use ganger_store::MemoryStore;
use ganger_store_postgres::rules::{
    Fence, FenceRow, Header, LogRecord, Place, RowWrite, SlotEnd, Target,
};
use ganger_types::Commit;

/// What a statement does with the fence before it appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceUse {
    /// It locks the row shared and compares epoch and owner of the newest version.
    Locked,
    /// Planted: it locks the row so weakly that a claim does not conflict with it.
    Weak,
    /// Planted: another statement has looked.
    Apart,
}

/// A statement on the tables of a shard.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    /// Begins a transaction whose statements wait so many microseconds for a lock.
    Begin(u64),
    /// Commits the transaction, and waits for the standby if there is one.
    Commit,
    /// Rolls the transaction back.
    Rollback,
    /// Reads the row `log` of the fence, and locks it if asked to.
    ReadFence { locks: bool },
    /// Writes a row of the fence.
    WriteFence {
        row: FenceRow,
        epoch: u64,
        owner: String,
    },
    /// Writes the state of both rows of the fence.
    WriteState(String),
    /// Reads how far the rows go.
    ReadCheckpoint,
    /// Reads where the log tables end. Planted: only up to a gap.
    ReadEnds { stops_at_gap: bool },
    /// Ends the sessions of the owner in the fence.
    EndOwner,
    /// Appends a record in a transaction of its own.
    Append {
        target: Target,
        place: Place,
        owner: String,
        body: Vec<u8>,
        fence: FenceUse,
    },
    /// Writes rows in a transaction of its own.
    WriteRows {
        epoch: u64,
        owner: String,
        commits: Vec<Arc<Commit>>,
        write: RowWrite,
        before: Header,
        /// Whether it compares how far the rows go with `before`.
        compares: bool,
        /// Whether it looks if the log has the commits.
        looks: bool,
    },
    /// Reads some records after a sequence.
    ReadRecords(u64),
    /// Empties a log table.
    Empty {
        epoch: u64,
        owner: String,
        slot: usize,
        /// Whether it looks if its rows are written.
        looks: bool,
    },
    /// Reads all rows of the shard at once.
    ReadRows,
}

/// The answer to a statement.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Done,
    Count(u64),
    Fence(Fence),
    Checkpoint(u64, Vec<u8>),
    Ends(Vec<SlotEnd>),
    Header(Header),
    Records(Vec<LogRecord>),
    Emptied(bool),
    Rows(MemoryStore),
}
