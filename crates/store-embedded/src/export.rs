//! The rows of a store for a store of another kind.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use ganger_store::StoreError;
use ganger_store::rows::transfer::{
    Cell, RowBatches, RowSource, ShardState, TransferRow, TransferTable,
};
use ganger_types::ShardId;
use rusqlite::types::ValueRef;

use crate::backup::backup;
use crate::connect;
use crate::create::{self, beside};
use crate::fault::{Fault, io};
use crate::meta::Header;
use crate::store::EmbeddedStore;

/// Maximum number of rows in a batch.
const BATCH_ROWS: usize = 1_000;
/// Maximum bytes of a batch, besides its last row.
const BATCH_BYTES: usize = 4 << 20;
/// Number of batches read ahead.
const BATCHES_AHEAD: usize = 2;

/// A store whose rows go to another store. It is locked against other processes, and read from a copy with all of its
/// rows, which has passed the audit, and which is removed when this is dropped.
pub struct Export {
    copy: PathBuf,
    state: ShardState,
    /// Holds the lock of the file until the export ends.
    _store: EmbeddedStore,
}

impl Export {
    /// Locks a store, brings it up to the format of this program, and copies it beside itself.
    ///
    /// # Errors
    /// If there is no such file, another process has it open, it is damaged, or there is no room for the copy.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(io(path, "opened", "there is no such file"));
        }
        let shard = shard_of(path)?;
        let store = EmbeddedStore::create_or_open(path, &shard)?;
        let copy = beside(path, ".export");
        create::remove_with_logs(&copy)?;
        backup(path, &copy)?;
        let header = connect::reader(&copy).and_then(|connection| {
            let header = Header::read_from(&connection);
            header.map_err(|fault| fault.at(&copy, "read"))
        })?;
        Ok(Self {
            state: ShardState {
                shard,
                epoch: header.epoch,
                sequence: header.sequence,
                meta: header.meta,
                counts: header.counts,
            },
            copy,
            _store: store,
        })
    }

    /// Returns the id of the shard.
    pub fn shard(&self) -> &ShardId {
        &self.state.shard
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // A copy that stays is removed by the next export.
        drop(create::remove_with_logs(&self.copy));
    }
}

/// Returns the id of the shard in a store.
fn shard_of(path: &Path) -> Result<ShardId, StoreError> {
    let connection = connect::reader(path)?;
    let header = Header::read_from(&connection).map_err(|fault| fault.at(path, "read"))?;
    ShardId::new(&header.shard).ok_or_else(|| StoreError::Damaged {
        path: path.display().to_string(),
        what: format!("{:?} is not the id of a shard", header.shard),
    })
}

impl RowSource for Export {
    fn state(&self) -> &ShardState {
        &self.state
    }

    fn rows(&self, table: TransferTable) -> RowBatches {
        let (out, batches) = sync_channel(BATCHES_AHEAD);
        let copy = self.copy.clone();
        thread::spawn(move || {
            if let Err(fault) = read(&copy, table, &out) {
                // Nobody may listen any more.
                drop(out.send(Err(fault.at(&copy, "read"))));
            }
        });
        batches
    }
}

/// Reads the rows of a table and sends them in batches.
fn read(
    copy: &Path,
    table: TransferTable,
    out: &SyncSender<Result<Vec<TransferRow>, StoreError>>,
) -> Result<(), Fault> {
    let connection = connect::reader(copy).map_err(Fault::Store)?;
    // The column has the name of an older format.
    let columns = table.columns.replace("dependency", "upstream");
    let mut statement = connection.prepare(&format!("SELECT {columns} FROM {}", table.name))?;
    let mut rows = statement.query([])?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let mut cells = Vec::with_capacity(table.kinds.len());
        for column in 0..table.kinds.len() {
            let cell = cell(row.get_ref(column)?);
            if let Cell::Bytes(value) = &cell {
                bytes += value.len();
            }
            cells.push(cell);
        }
        batch.push(cells);
        if batch.len() >= BATCH_ROWS || bytes >= BATCH_BYTES {
            bytes = 0;
            if out.send(Ok(std::mem::take(&mut batch))).is_err() {
                return Ok(());
            }
        }
    }
    // Nobody may listen any more.
    drop(out.send(Ok(batch)));
    Ok(())
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Integer(number) => Cell::Number(number),
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => Cell::Bytes(bytes.to_vec()),
        // No column holds other numbers.
        ValueRef::Real(_) | ValueRef::Null => Cell::Missing,
    }
}
