//! Rewrites rows of external systems.

use std::sync::Arc;

use ganger_store::rows::external::{ExternalTable, is_qless_job_by_id, qless_name, read_qless_row};
use ganger_store::rows::row::seal_record;
use ganger_types::qless::QlessRow;
use rusqlite::Connection;

use super::each;
use crate::fault::Fault;

/// Gives every qless job a number and renames its row by it.
pub(crate) fn number_jobs(connection: &Connection) -> Result<(), Fault> {
    let table = ExternalTable::Qless.name();
    let sql = format!("UPDATE {table} SET name = ?2, body = ?3 WHERE name = ?1");
    let mut rename = connection.prepare(&sql)?;
    let mut buffer = Vec::new();
    let mut numbers = 1..;
    each(connection, table, |name, body| {
        // Renamed rows are visited again, after all others of their namespace.
        if !is_qless_job_by_id(name) {
            return Ok(());
        }
        let (namespace, mut row) = read_qless_row(name, body)?;
        if let (QlessRow::Job(job), Some(number)) = (&mut row, numbers.next()) {
            Arc::make_mut(job).number = number;
        }
        let named = qless_name(&namespace, &row.key());
        seal_record(table, &named, &row, &mut buffer);
        rename.execute((name, named, &buffer))?;
        Ok(())
    })
}
