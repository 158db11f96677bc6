//! Takes the rows of another store into an empty shard: all of them in one transaction, or none.

use std::collections::BTreeSet;

use ganger_store::rows::row::{from_sql, to_sql};
use ganger_store::rows::transfer::{
    Cell, ColumnKind, RowSource, ShardState, TransferRow, TransferTable, tables,
};
use tokio_postgres::types::Type;

use crate::admin::{Admin, AdminError};
use crate::columns::{Column, Insert};
use crate::fault::Fault;
use crate::header::Header;
use crate::record::{self, Place};
use crate::schema::{RANGE_BITS, SLOTS, schema_of};
use crate::session::{Parameter, Wire};
use crate::transfer::holder;

/// What was taken from another store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Number of the shard in its database.
    pub shard: u32,
    /// Number of rows of all tables.
    pub rows: u64,
}

impl Admin {
    /// Takes all rows of a store into the shard of the same id, which must be empty, and which no node may have open.
    ///
    /// # Errors
    /// If the cluster has no such shard, the shard has been used or is open, or the rows cannot be read or written. Then
    /// nothing has changed. After [`AdminError::Unknown`] the rows are all there, or none of them.
    pub fn import(&mut self, source: &dyn RowSource) -> Result<Imported, AdminError> {
        let (database, _) = self.parts();
        let (database, shard) = (database.to_owned(), source.state().shard.to_string());
        self.transfer(&shard.clone(), async |wire| {
            let taken = take(wire, source).await?;
            Ok(taken.map_err(|refusal| match refusal {
                Refusal::NoShard => AdminError::NoSuchShard { database, shard },
                Refusal::InUse => AdminError::ShardInUse { database, shard },
                Refusal::Open { holder } => AdminError::ShardOpen {
                    database,
                    shard,
                    holder,
                },
            }))
        })
    }
}

/// Why nothing is taken.
enum Refusal {
    /// The cluster has no shard of this id.
    NoShard,
    /// The shard has been used.
    InUse,
    /// The shard is open.
    Open {
        /// Name of the node.
        holder: String,
    },
}

async fn take(wire: &Wire, source: &dyn RowSource) -> Result<Result<Imported, Refusal>, Fault> {
    let state = source.state();
    let sql = "SELECT number FROM ganger.shard WHERE id = $1";
    let id = state.shard.as_str();
    let rows = wire.query_once(sql, &[(&id, Type::TEXT)]).await?;
    let Some(row) = rows.first() else {
        return Ok(Err(Refusal::NoShard));
    };
    let number: i32 = row.try_get(0)?;
    let shard = u32::try_from(number).unwrap_or(u32::MAX);
    let target = Target {
        wire,
        schema: schema_of(shard),
        number,
        state,
    };
    let fence = target.lock().await?;
    if target.is_used().await? {
        return Ok(Err(Refusal::InUse));
    }
    if let Some(holder) = holder(wire, number).await? {
        return Ok(Err(Refusal::Open { holder }));
    }
    let mut imported = Imported { shard, rows: 0 };
    let mut ranges = BTreeSet::from([0, 1]);
    for table in tables() {
        for batch in source.rows(table) {
            let batch = batch.map_err(Fault::Store)?;
            target.add_ranges(table, &batch, &mut ranges).await?;
            imported.rows += target.write(table, batch).await?;
        }
    }
    target.finish(&fence).await?;
    Ok(Ok(imported))
}

/// The fence of the shard before the import.
struct LockedFence {
    epoch: u64,
    identity: [u8; 16],
}

/// The empty shard that takes the rows.
struct Target<'a> {
    wire: &'a Wire,
    schema: String,
    number: i32,
    state: &'a ShardState,
}

impl Target<'_> {
    /// Keeps everybody else from opening the shard.
    async fn lock(&self) -> Result<LockedFence, Fault> {
        let sql = format!(
            "SELECT epoch, identity FROM {}.fence WHERE what IN ('log', 'rows') ORDER BY what FOR UPDATE",
            self.schema
        );
        let rows = self.wire.query_once(&sql, &[]).await?;
        let missing = || Fault::row("fence", "log", "it is missing");
        let row = rows.first().ok_or_else(missing)?;
        let (epoch, identity): (i64, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
        Ok(LockedFence {
            epoch: from_sql(epoch),
            identity: identity.try_into().map_err(|_| missing())?,
        })
    }

    /// Whether anything was ever written into the shard.
    async fn is_used(&self) -> Result<bool, Fault> {
        let schema = &self.schema;
        let sql = format!(
            "SELECT EXISTS (SELECT 1 FROM {schema}.jobs) OR EXISTS (SELECT 1 FROM {schema}.finished)
                OR EXISTS (SELECT 1 FROM {schema}.places) OR (SELECT max(seq) FROM {}) > 0",
            self.logs()
        );
        let rows = self.wire.query_once(&sql, &[]).await?;
        let missing = || Fault::row("log", "0", "it is missing");
        Ok(rows.first().ok_or_else(missing)?.try_get(0)?)
    }

    /// Returns the log tables as one.
    fn logs(&self) -> String {
        let schema = &self.schema;
        let each = (0..SLOTS).map(|slot| format!("SELECT seq FROM {schema}.log_{slot}"));
        format!("({}) AS logs", each.collect::<Vec<_>>().join(" UNION ALL "))
    }

    /// Makes the tables for the ranges of job numbers of rows that have none yet.
    async fn add_ranges(
        &self,
        table: TransferTable,
        rows: &[TransferRow],
        ranges: &mut BTreeSet<i64>,
    ) -> Result<(), Fault> {
        let Some(job) = table.job else {
            return Ok(());
        };
        for row in rows {
            let Some(Cell::Number(key)) = row.get(job) else {
                continue;
            };
            let range = key >> RANGE_BITS;
            if ranges.insert(range) {
                let parameters: [Parameter<'_>; 2] =
                    [(&self.number, Type::INT4), (&range, Type::INT8)];
                let sql = "SELECT ganger.add_range($1, $2)";
                self.wire.query_once(sql, &parameters).await?;
            }
        }
        Ok(())
    }

    /// Writes rows; returns their number.
    async fn write(&self, table: TransferTable, rows: Vec<TransferRow>) -> Result<u64, Fault> {
        if rows.is_empty() {
            return Ok(0);
        }
        let insert = Insert {
            table: format!("{}.{}", self.schema, table.name),
            names: table.columns,
            columns: columns(table, rows)?,
            conflict: "",
        };
        self.wire.copy_in(&insert.copy_sql(), insert.copied()).await
    }

    /// Writes the state of the shard, under an epoch of its own.
    async fn finish(&self, fence: &LockedFence) -> Result<(), Fault> {
        let (schema, wire, state) = (&self.schema, self.wire, self.state);
        let places = format!(
            "SELECT setval(pg_get_serial_sequence('{schema}.places', 'id'),
                greatest((SELECT max(id) FROM {schema}.places), 1))"
        );
        wire.query_once(&places, &[]).await?;
        let header = Header {
            shard: state.shard.as_str().to_owned(),
            sequence: state.sequence,
            meta: state.meta,
            counts: state.counts,
        };
        let (sequence, sealed) = (to_sql(state.sequence), header.seal());
        let sql = format!("UPDATE {schema}.checkpoint SET sequence = $1, slot = 0, meta = $2");
        let parameters: [Parameter<'_>; 2] = [(&sequence, Type::INT8), (&sealed, Type::BYTEA)];
        wire.execute_once(&sql, &parameters).await?;
        // Tokens carry the epochs of their owners: the next one must be above those of both stores.
        let epoch = fence.epoch.max(state.epoch.0) + 1;
        let place = Place {
            identity: fence.identity,
            epoch,
            sequence: state.sequence,
        };
        let (epoch, record) = (to_sql(epoch), record::in_rows(place));
        for slot in 0..SLOTS {
            wire.batch(&format!("DELETE FROM {schema}.log_{slot}"))
                .await?;
        }
        let sql = format!("INSERT INTO {schema}.log_0 (seq, epoch, body) VALUES ($1, $2, $3)");
        let parameters: [Parameter<'_>; 3] = [
            (&sequence, Type::INT8),
            (&epoch, Type::INT8),
            (&record, Type::BYTEA),
        ];
        wire.execute_once(&sql, &parameters).await?;
        let sql = format!("UPDATE {schema}.fence SET epoch = $1, owner = 'import'");
        wire.execute_once(&sql, &[(&epoch, Type::INT8)]).await?;
        Ok(())
    }
}

/// Returns rows by column.
fn columns(table: TransferTable, rows: Vec<TransferRow>) -> Result<Vec<Column>, Fault> {
    let mut columns: Vec<_> = table.kinds.iter().map(|kind| empty(*kind)).collect();
    for row in rows {
        for (column, cell) in columns.iter_mut().zip(row) {
            let is_added = add(column, cell);
            is_added.ok_or_else(|| Fault::row(table.name, "?", "a value has the wrong type"))?;
        }
    }
    Ok(columns)
}

fn empty(kind: ColumnKind) -> Column {
    match kind {
        ColumnKind::Number => Column::Int8(Vec::new()),
        ColumnKind::OptionalNumber => Column::Int8Option(Vec::new()),
        ColumnKind::SmallNumber => Column::Int2(Vec::new()),
        ColumnKind::Flag => Column::Bool(Vec::new()),
        ColumnKind::Bytes => Column::Bytes(Vec::new()),
        ColumnKind::OptionalBytes => Column::BytesOption(Vec::new()),
    }
}

/// Adds a value to a column; `None` if it has another type.
fn add(column: &mut Column, cell: Cell) -> Option<()> {
    match (column, cell) {
        (Column::Int8(values), Cell::Number(number)) => values.push(number),
        (Column::Int8Option(values), Cell::Number(number)) => values.push(Some(number)),
        (Column::Int8Option(values), Cell::Missing) => values.push(None),
        (Column::Int2(values), Cell::Number(number)) => values.push(number.try_into().ok()?),
        (Column::Bool(values), Cell::Number(number)) => values.push(number != 0),
        (Column::Bytes(values), Cell::Bytes(bytes)) => values.push(bytes),
        (Column::BytesOption(values), Cell::Bytes(bytes)) => values.push(Some(bytes)),
        (Column::BytesOption(values), Cell::Missing) => values.push(None),
        _ => return None,
    }
    Some(())
}
