//! Writes rows of the small tables, which have a name and a body.

use ganger_store::merge::RowKey;
use ganger_store::rows::names::{SmallTable, row_name};
use ganger_store::rows::small::encode;
use ganger_types::Change;
use rusqlite::{CachedStatement, Connection};

use crate::fault::Fault;

/// Writes the last change of each small row. Rows of one table come together, so that its statements are looked up
/// once.
pub(crate) struct RowWriter<'a> {
    connection: &'a Connection,
    put: Option<(SmallTable, CachedStatement<'a>)>,
    delete: Option<(SmallTable, CachedStatement<'a>)>,
}

impl<'a> RowWriter<'a> {
    pub(crate) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            put: None,
            delete: None,
        }
    }

    /// Writes the last change of a row.
    pub(crate) fn write(
        &mut self,
        key: &RowKey<'_>,
        change: &Change,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let (small, name) = row_name(key);
        if encode(small.table(), &name, change, buffer) {
            let put = statement_of(&mut self.put, small, || {
                self.connection.prepare_cached(&put_sql(small))
            })?;
            put.execute((&name, &*buffer))?;
        } else {
            let delete = statement_of(&mut self.delete, small, || {
                self.connection.prepare_cached(&delete_sql(small))
            })?;
            delete.execute([&name])?;
        }
        Ok(())
    }
}

/// Returns the statement for this table, reusing the last one if it is the same.
fn statement_of<'s, 'a>(
    at_hand: &'s mut Option<(SmallTable, CachedStatement<'a>)>,
    small: SmallTable,
    look_up: impl FnOnce() -> rusqlite::Result<CachedStatement<'a>>,
) -> rusqlite::Result<&'s mut CachedStatement<'a>> {
    if at_hand.as_ref().is_none_or(|(table, _)| *table != small) {
        // The old statement returns to the cache before the next is taken.
        *at_hand = None;
    }
    let statement = match at_hand.take() {
        Some((_, statement)) => statement,
        None => look_up()?,
    };
    Ok(&mut at_hand.insert((small, statement)).1)
}

fn put_sql(small: SmallTable) -> String {
    format!(
        "INSERT INTO {} (name, body) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET body = excluded.body",
        small.table()
    )
}

fn delete_sql(small: SmallTable) -> String {
    format!("DELETE FROM {} WHERE name = ?1", small.table())
}
