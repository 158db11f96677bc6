//! A new store made of the rows of a store of another kind.

use std::fs::File;
use std::path::{Path, PathBuf};

use ganger_store::StoreError;
use ganger_store::rows::transfer::{Cell, RowSink, ShardState, TransferRow, TransferTable};
use ganger_types::ShardId;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::audit;
use crate::connect;
use crate::create::{self, beside};
use crate::fault::{Fault, io};
use crate::tables::Tables;

/// A store that is being made. Its file appears when it is complete, flushed and checked; without that nothing stays.
pub struct Import {
    path: PathBuf,
    new: PathBuf,
    /// The connection, in a transaction; `None` once the store is complete.
    connection: Option<Connection>,
}

impl Import {
    /// Begins a new store in a file.
    ///
    /// # Errors
    /// If the file exists, or cannot be created.
    pub fn create(path: impl AsRef<Path>, shard: &ShardId) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if path.exists() {
            return Err(io(
                path,
                "written",
                "the file exists already: name a new one",
            ));
        }
        create::make_parent(path)?;
        let new = beside(path, ".import");
        create::remove_with_logs(&new)?;
        create::create(&new, shard)?;
        let connection = connect::writer(&new)?;
        let begun = connection.execute_batch("BEGIN IMMEDIATE");
        begun.map_err(|error| Fault::from(error).at(&new, "written"))?;
        Ok(Self {
            path: path.to_owned(),
            new,
            connection: Some(connection),
        })
    }

    fn connection(&self) -> &Connection {
        let connection = self.connection.as_ref();
        connection.expect("only a complete store has none")
    }

    fn insert(&self, table: TransferTable, rows: Vec<TransferRow>) -> Result<(), Fault> {
        // The column has the name of an older format.
        let columns = table.columns.replace("dependency", "upstream");
        let places: Vec<_> = (1..=table.kinds.len())
            .map(|number| format!("?{number}"))
            .collect();
        let sql = format!(
            "INSERT INTO {} ({columns}) VALUES ({})",
            table.name,
            places.join(", ")
        );
        let mut statement = self.connection().prepare_cached(&sql)?;
        for row in rows {
            statement.execute(params_from_iter(row.iter().map(Parameter)))?;
        }
        Ok(())
    }

    fn complete(&mut self, state: &ShardState) -> Result<(), Fault> {
        let connection = self.connection();
        let mut tables = Tables::read_from(connection)?;
        tables.change_header(connection, |header| {
            (header.epoch, header.sequence) = (state.epoch, state.sequence);
            (header.meta, header.counts) = (state.meta, state.counts);
        })?;
        connection.execute_batch("COMMIT")?;
        let connection = self.connection.take().expect("it was just used");
        connection.close().map_err(|(_, error)| Fault::Sql(error))
    }
}

impl RowSink for Import {
    fn put(&mut self, table: TransferTable, rows: Vec<TransferRow>) -> Result<(), StoreError> {
        let inserted = self.insert(table, rows);
        inserted.map_err(|fault| fault.at(&self.new, "written"))
    }

    fn finish(&mut self, state: &ShardState) -> Result<(), StoreError> {
        let completed = self.complete(state);
        completed.map_err(|fault| fault.at(&self.new, "written"))?;
        let report = audit::check(&self.new, |_| {})?;
        if let Some(finding) = report.findings.first() {
            return Err(StoreError::Damaged {
                path: self.new.display().to_string(),
                what: format!("it does not pass the audit: {finding}"),
            });
        }
        create::remove_logs(&self.new)?;
        let flushed = File::open(&self.new).and_then(|file| file.sync_all());
        flushed.map_err(|error| io(&self.new, "flushed", error))?;
        let renamed = renameat_with(CWD, &self.new, CWD, &self.path, RenameFlags::NOREPLACE);
        renamed.map_err(|error| io(&self.path, "created", error))?;
        create::sync_parent(&self.path)
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        drop(self.connection.take());
        // What stays is removed by the next import.
        drop(create::remove_with_logs(&self.new));
    }
}

/// A cell as the parameter of a statement.
struct Parameter<'a>(&'a Cell);

impl ToSql for Parameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            Cell::Number(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Cell::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Cell::Missing => ToSqlOutput::Owned(Value::Null),
        })
    }
}
