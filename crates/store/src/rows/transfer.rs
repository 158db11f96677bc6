//! The rows of a whole shard on their way from one store to another: both keep the same records in the same tables.

use std::sync::mpsc::Receiver;

use ganger_types::{Epoch, Meta, ShardId};

use super::counts::Counts;
use super::names::SmallTable;
use crate::StoreError;

/// The state of a shard besides its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardState {
    /// Id of the shard.
    pub shard: ShardId,
    /// Epoch of the last owner.
    pub epoch: Epoch,
    /// Sequence of the last commit; all of its rows are in the tables.
    pub sequence: u64,
    /// Counters and clocks after that commit.
    pub meta: Meta,
    /// Number of rows in the tables of jobs.
    pub counts: Counts,
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A number, or 0 and 1 for no and yes.
    Number(i64),
    /// Bytes, such as a sealed record.
    Bytes(Vec<u8>),
    /// No value, as NULL in SQL.
    Missing,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// A number of 64 bits.
    Number,
    /// A number of 64 bits, or no value.
    OptionalNumber,
    /// A number of 16 bits.
    SmallNumber,
    /// Yes or no, as the numbers 1 and 0.
    Flag,
    /// Bytes, of any length.
    Bytes,
    /// Bytes, or no value.
    OptionalBytes,
}

/// A table of both stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferTable {
    /// Name of the table.
    pub name: &'static str,
    /// Names of its columns, separated by commas.
    pub columns: &'static str,
    /// What the columns hold, in the same order.
    pub kinds: &'static [ColumnKind],
    /// Index of the column with the number of a job by which the rows may be split into ranges; `None` if there is none.
    pub job: Option<usize>,
}

use ColumnKind::{Bytes, Flag, Number, OptionalBytes, OptionalNumber, SmallNumber};

/// The tables of jobs and queues, in an order in which they can be written.
const LARGE: [TransferTable; 8] = [
    TransferTable {
        name: "places",
        columns: "id, namespace, queue",
        kinds: &[Number, Bytes, Bytes],
        job: None,
    },
    TransferTable {
        name: "jobs",
        columns: "key, marked, body",
        kinds: &[Number, Flag, Bytes],
        job: None,
    },
    TransferTable {
        name: "leases",
        columns: "key, body",
        kinds: &[Number, Bytes],
        job: None,
    },
    TransferTable {
        name: "finished",
        columns: "key, marked, place, outcome, ended_at, ended_order, own, body, result",
        kinds: &[
            Number,
            Flag,
            Number,
            SmallNumber,
            Number,
            Number,
            OptionalNumber,
            Bytes,
            OptionalBytes,
        ],
        job: Some(0),
    },
    TransferTable {
        name: "payloads",
        columns: "key, body",
        kinds: &[Number, Bytes],
        job: Some(0),
    },
    TransferTable {
        name: "inputs",
        columns: "job, slot, dependency, body",
        kinds: &[Number, Number, OptionalNumber, Bytes],
        job: Some(0),
    },
    TransferTable {
        name: "marks",
        columns: "mark, key",
        kinds: &[Bytes, Number],
        job: Some(1),
    },
    TransferTable {
        name: "logs",
        columns: "job, attempt, start, body",
        kinds: &[Number, Number, Number, Bytes],
        job: Some(0),
    },
];

/// Returns all tables, in an order in which they can be written.
pub fn tables() -> impl Iterator<Item = TransferTable> {
    let small = SmallTable::ALL.into_iter().map(|small| TransferTable {
        name: small.table(),
        columns: "name, body",
        kinds: &[Bytes, Bytes],
        job: None,
    });
    LARGE.into_iter().chain(small)
}

/// A row of a table: a value for each column.
pub type TransferRow = Vec<Cell>;

/// Rows of a table, in batches of bounded size, from a thread that reads them.
pub type RowBatches = Receiver<Result<Vec<TransferRow>, StoreError>>;

/// A shard whose rows can be read for another store. Nobody changes them meanwhile.
pub trait RowSource {
    /// Returns the state of the shard besides its rows.
    fn state(&self) -> &ShardState;

    /// Reads the rows of a table. The channel ends after the last one, or after an error.
    fn rows(&self, table: TransferTable) -> RowBatches;
}

/// A new store that takes the rows of a shard.
pub trait RowSink {
    /// Takes rows of a table. Each table comes once, in the order of [`tables`], in any number of batches.
    ///
    /// # Errors
    /// If they cannot be written.
    fn put(&mut self, table: TransferTable, rows: Vec<TransferRow>) -> Result<(), StoreError>;

    /// Completes the store, which has all rows of this state.
    ///
    /// # Errors
    /// If the store cannot be written, or does not pass its audit.
    fn finish(&mut self, state: &ShardState) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_kind_and_every_table_comes_once() {
        let mut names: Vec<_> = tables().map(|table| table.name).collect();
        for table in tables() {
            let columns = table.columns.split(", ").count();
            assert_eq!(columns, table.kinds.len(), "{}", table.name);
            if let Some(job) = table.job {
                assert_eq!(table.kinds[job], Number, "{}", table.name);
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
