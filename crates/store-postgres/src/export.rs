//! Passes the rows of a shard to another store, and closes the shard for good: all in one transaction.

use ganger_store::rows::row::from_sql;
use ganger_store::rows::transfer::{
    Cell, ColumnKind, RowSink, ShardState, TransferRow, TransferTable, tables,
};
use ganger_store::{Opened, Store as _};
use ganger_types::{Epoch, ShardId};

use crate::admin::{Admin, AdminError, explain};
use crate::columns::CopyReader;
use crate::database::Database;
use crate::fault::Fault;
use crate::header::Header;
use crate::schema::schema_of;
use crate::session::Wire;
use crate::settings::Settings;
use crate::store::PostgresStore;

/// Maximum number of rows that are passed on at once.
const BATCH_ROWS: usize = 1_000;

impl Admin {
    /// Passes all rows of a shard to `sink`. Nobody can open the shard afterwards. Returns the number of rows.
    ///
    /// # Errors
    /// If the rows cannot be read or written, or a node has opened the shard meanwhile. Then the shard stays as it is.
    /// After [`AdminError::Unknown`] the shard is closed, or stays as it is; `sink` has all rows then.
    pub fn export(
        &mut self,
        settings: Settings,
        (number, shard): (u32, &ShardId),
        sink: &mut dyn RowSink,
    ) -> Result<u64, AdminError> {
        let (label, _) = self.parts();
        let opened = open(settings, number, shard).map_err(|fault| explain(label, fault))?;
        self.transfer(shard.as_str(), async |wire| {
            let source = Source {
                wire,
                schema: schema_of(number),
                shard,
                epoch: opened.epoch,
            };
            source.pass_on(sink).await.map(Ok)
        })
    }
}

/// Takes the shard over, which writes the rows of its log.
fn open(settings: Settings, number: u32, shard: &ShardId) -> Result<Opened, Fault> {
    let database = Database::new(settings).map_err(|error| Fault::Lost(error.to_string()))?;
    let mut store = PostgresStore::new(&database, number, shard, "export");
    store.open().map_err(Fault::Store)
}

struct Source<'a> {
    wire: &'a Wire,
    schema: String,
    shard: &'a ShardId,
    /// Epoch of our own claim.
    epoch: Epoch,
}

impl Source<'_> {
    async fn pass_on(&self, sink: &mut dyn RowSink) -> Result<u64, Fault> {
        let state = self.lock().await?;
        let mut count = 0;
        for table in tables() {
            count += self.read(table, sink).await?;
        }
        sink.finish(&state).map_err(Fault::Store)?;
        let close = format!("UPDATE {}.fence SET state = 'exported'", self.schema);
        self.wire.batch(&close).await?;
        Ok(count)
    }

    /// Keeps everybody else from the shard, and reads its state.
    async fn lock(&self) -> Result<ShardState, Fault> {
        let schema = &self.schema;
        let sql = format!(
            "SELECT f.epoch, c.sequence, c.meta FROM {schema}.fence f, {schema}.checkpoint c
             WHERE f.what IN ('log', 'rows') ORDER BY f.what FOR UPDATE OF f"
        );
        let rows = self.wire.query_once(&sql, &[]).await?;
        let missing = || Fault::row("fence", "log", "it is missing");
        let row = rows.first().ok_or_else(missing)?;
        let (epoch, sequence, sealed): (i64, i64, Vec<u8>) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if from_sql(epoch) != self.epoch.0 {
            return Err(Fault::Fenced {
                theirs: Some(Epoch(from_sql(epoch))),
            });
        }
        let header = Header::open(&sealed, from_sql(sequence))?;
        Ok(ShardState {
            shard: self.shard.clone(),
            epoch: self.epoch,
            sequence: header.sequence,
            meta: header.meta,
            counts: header.counts,
        })
    }

    /// Passes the rows of a table on; returns their number.
    async fn read(&self, table: TransferTable, sink: &mut dyn RowSink) -> Result<u64, Fault> {
        let TransferTable { name, columns, .. } = table;
        let sql = format!(
            "COPY (SELECT {columns} FROM {}.{name}) TO STDOUT (FORMAT BINARY)",
            self.schema
        );
        let (mut reader, mut batch, mut count) = (CopyReader::default(), Vec::new(), 0);
        let copied = self.wire.copy_out(&sql, |bytes| {
            reader.read(&bytes, |fields| -> Result<(), Fault> {
                batch.push(row(table, fields)?);
                count += 1;
                if batch.len() >= BATCH_ROWS {
                    sink.put(table, std::mem::take(&mut batch))
                        .map_err(Fault::Store)?;
                }
                Ok(())
            })
        });
        copied.await?;
        sink.put(table, batch).map_err(Fault::Store)?;
        Ok(count)
    }
}

/// Returns the cells of a row.
fn row(table: TransferTable, fields: &[Option<&[u8]>]) -> Result<TransferRow, Fault> {
    let cells = table.kinds.iter().zip(fields).map(|(kind, field)| {
        let cell = cell(*kind, *field);
        cell.ok_or_else(|| Fault::row(table.name, "?", "a value has the wrong type"))
    });
    cells.collect()
}

/// Returns a value; `None` if it is not of its kind.
fn cell(kind: ColumnKind, field: Option<&[u8]>) -> Option<Cell> {
    let Some(bytes) = field else {
        return Some(Cell::Missing);
    };
    Some(match kind {
        ColumnKind::Number | ColumnKind::OptionalNumber => {
            Cell::Number(i64::from_be_bytes(bytes.try_into().ok()?))
        }
        ColumnKind::SmallNumber => Cell::Number(i16::from_be_bytes(bytes.try_into().ok()?).into()),
        ColumnKind::Flag => Cell::Number(i64::from(*bytes.first()?)),
        ColumnKind::Bytes | ColumnKind::OptionalBytes => Cell::Bytes(bytes.to_vec()),
    })
}
