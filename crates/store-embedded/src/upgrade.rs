//! Rewrites rows of older versions in today's form, a few at a time, and verifies each.

mod external;

use ganger_store::encoding::Record;
use ganger_store::rows::names::SmallTable;
use ganger_store::rows::row::{open_record, seal_record};
use rusqlite::Connection;

use crate::fault::Fault;
pub(crate) use external::number_jobs;

/// Number of rows in memory at a time.
const ROWS_AT_ONCE: u32 = 100;

/// Rewrites every row of a table.
pub(crate) fn rewrite<R: Record>(connection: &Connection, small: SmallTable) -> Result<(), Fault> {
    let table = small.table();
    let write = format!("UPDATE {table} SET body = ?2 WHERE name = ?1");
    let mut write = connection.prepare(&write)?;
    let mut buffer = Vec::new();
    each(connection, table, |name, body| {
        let record: R = open_record(table, name, body)?;
        seal_record(table, name, &record, &mut buffer);
        write.execute((name, &buffer))?;
        Ok(())
    })
}

/// Visits every row of a table in order of names.
fn each(
    connection: &Connection,
    table: &str,
    mut look: impl FnMut(&[u8], &[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let sql = format!(
        "SELECT name, body FROM {table} WHERE name > ?1 ORDER BY name LIMIT {ROWS_AT_ONCE}"
    );
    let mut read = connection.prepare(&sql)?;
    let mut last = Vec::new();
    loop {
        let rows = read.query_map([&last], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows: Vec<(Vec<u8>, Vec<u8>)> = rows.collect::<Result<_, _>>()?;
        let Some((name, _)) = rows.last() else {
            return Ok(());
        };
        last.clone_from(name);
        for (name, body) in &rows {
            look(name, body)?;
        }
    }
}
