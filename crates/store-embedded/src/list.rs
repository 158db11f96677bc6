//! Listings in slices: constant memory, and no long read transaction.
//!
//! A reader inside a long transaction would keep SQLite from restarting its write-ahead log. So a listing reads at
//! most [`SLICE_ROWS_MAX`] rows per transaction and continues after the last row in a newer state. The secondary
//! index and the leases lead straight to the few jobs they name; other filters are evaluated on the header of each
//! record, after its checksum is verified.

use ganger_store::StoredJob;
use ganger_store::rows::listing::Matches;
use ganger_store::rows::plan::Source;
use ganger_store::rows::row::from_sql;
use ganger_types::JobKey;
use rusqlite::Connection;

use crate::fault::Fault;
use crate::reader::{job, lease};

/// Maximum number of rows that one slice reads: about 10 ms of work.
const SLICE_ROWS_MAX: usize = 10_000;
/// Maximum bytes of records that one slice reads, for records with long histories or messages.
const SLICE_BYTES_MAX: usize = 8 << 20;

/// SQL for rows of (key, table, body) after a key, in either direction.
fn sql_of(source: &Source, newest_first: bool) -> String {
    let (beyond, order) = if newest_first {
        ("<", "DESC")
    } else {
        (">", "ASC")
    };
    let (live, finished) = (
        format!("SELECT key, 'jobs', body FROM jobs WHERE key {beyond} ?1"),
        format!("SELECT key, 'finished', body FROM finished WHERE key {beyond} ?1"),
    );
    let rows = match source {
        Source::IndexEntry(_) => {
            format!("SELECT key, '', NULL FROM marks WHERE mark = ?2 AND key {beyond} ?1")
        }
        Source::Leases => format!("SELECT key, '', NULL FROM leases WHERE key {beyond} ?1"),
        Source::Finished => finished,
        Source::Live => live,
        Source::All => format!("{live} UNION ALL {finished}"),
    };
    format!("{rows} ORDER BY 1 {order}")
}

/// A page of a listing, or a count, while it is collected.
pub(crate) struct Listing<'a> {
    matches: Matches<'a>,
    source: Source,
    sql: String,
    /// Key of the last row read.
    last: i64,
}

impl<'a> Listing<'a> {
    pub(crate) fn new(matches: Matches<'a>) -> Self {
        let source = Source::of(matches.query);
        let sql = sql_of(&source, matches.query.newest_first);
        Self {
            source,
            sql,
            last: matches.start(),
            matches,
        }
    }

    /// Reads the next slice; returns true once the page is full or no rows are left.
    pub(crate) fn slice(&mut self, connection: &Connection) -> Result<bool, Fault> {
        let mut statement = connection.prepare_cached(&self.sql)?;
        let mut rows = match &self.source {
            Source::IndexEntry(mark) => statement.query((self.last, mark))?,
            _ => statement.query([self.last])?,
        };
        let mut bytes = 0;
        for _ in 0..SLICE_ROWS_MAX {
            let Some(row) = rows.next()? else {
                self.matches.end();
                return Ok(true);
            };
            let number = row.get(0)?;
            let key = JobKey(from_sql(number));
            let table = row.get_ref(1)?.as_str().unwrap_or_default();
            let found = match table {
                "" => candidate(&mut self.matches, connection, key)?,
                _ => {
                    let sealed = row.get_ref(2)?.as_blob().unwrap_or_default();
                    bytes += sealed.len();
                    let lease = || match table {
                        "jobs" => lease(connection, key),
                        _ => Ok(None),
                    };
                    self.matches.judge(table, key, sealed, lease)?
                }
            };
            self.last = number;
            if self.matches.add(key, found) {
                return Ok(true);
            }
            if bytes > SLICE_BYTES_MAX {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Returns what was collected.
    pub(crate) fn into_matches(self) -> Matches<'a> {
        self.matches
    }
}

/// Reads a job that the index or a lease names; `None` if it does not match.
fn candidate(
    matches: &mut Matches<'_>,
    connection: &Connection,
    key: JobKey,
) -> Result<Option<StoredJob>, Fault> {
    let found = job(connection, key)?
        .ok_or_else(|| Fault::row("marks", key, "the job that it leads to is not there"))?;
    Ok(matches.evaluate(found))
}
