//! Listings in slices: constant memory, and no long read transaction.
//!
//! A reader inside a long transaction would keep SQLite from restarting its write-ahead log. So a listing reads at
//! most [`SLICE_ROWS_MAX`] rows per transaction and continues after the last row in a newer state. The secondary
//! index and the leases lead straight to the few jobs they name; other filters are evaluated on the header of each
//! record, after its checksum is verified.

use ganger_store::encoding::JobHeader;
use ganger_store::rows::plan::Source;
use ganger_store::rows::row::{from_sql, open, open_record, row_key, show, to_sql};
use ganger_store::{Page, StoredJob, select};
use ganger_types::query::JobQuery;
use ganger_types::{JobKey, JobRecord};
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
    query: &'a JobQuery,
    source: Source,
    sql: String,
    /// Key of the last row read.
    last: i64,
    jobs: Vec<StoredJob>,
    limit: usize,
    /// Number of jobs found so far if this is a count, which keeps no jobs; `None` for a page.
    count: Option<u64>,
}

impl<'a> Listing<'a> {
    pub(crate) fn new(query: &'a JobQuery) -> Self {
        let source = Source::of(query);
        let sql = sql_of(&source, query.newest_first);
        let start = if query.newest_first { i64::MAX } else { -1 };
        let last = query.after.map_or(start, |key| to_sql(key.0));
        Self {
            query,
            source,
            sql,
            last,
            jobs: Vec::new(),
            limit: select::page_limit(query),
            count: None,
        }
    }

    /// Makes a listing that only counts, to the end.
    pub(crate) fn counting(query: &'a JobQuery) -> Self {
        Self {
            count: Some(0),
            ..Self::new(query)
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
                return Ok(true);
            };
            let number = row.get(0)?;
            let key = JobKey(from_sql(number));
            let table = row.get_ref(1)?.as_str().unwrap_or_default();
            let found = match table {
                "" => self.candidate(connection, key)?,
                _ => {
                    let sealed = row.get_ref(2)?.as_blob().unwrap_or_default();
                    bytes += sealed.len();
                    self.judge(connection, table, key, sealed)?
                }
            };
            self.last = number;
            if let Some(count) = &mut self.count {
                *count += u64::from(found.is_some());
            } else {
                self.jobs.extend(found);
            }
            // One job more than the page holds shows that there is a next page.
            if self.jobs.len() > self.limit {
                return Ok(true);
            }
            if bytes > SLICE_BYTES_MAX {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Reads a job that the index or a lease names; `None` if it does not match.
    fn candidate(&self, connection: &Connection, key: JobKey) -> Result<Option<StoredJob>, Fault> {
        let found = job(connection, key)?
            .ok_or_else(|| Fault::row("marks", key, "the job that it leads to is not there"))?;
        Ok(Some(found).filter(|job| select::matches(self.query, job)))
    }

    /// Evaluates one row; decodes the whole record only if its header may match.
    fn judge(
        &self,
        connection: &Connection,
        table: &str,
        key: JobKey,
        sealed: &[u8],
    ) -> Result<Option<StoredJob>, Fault> {
        let at = row_key(key);
        let content = open(table, &at, sealed)?;
        let front =
            JobHeader::of(content).map_err(|error| Fault::unreadable(table, show(&at), &error))?;
        if !select::may_match(self.query, &front) {
            return Ok(None);
        }
        let record: JobRecord = open_record(table, &at, sealed)?;
        let lease = if table == "jobs" {
            lease(connection, key)?
        } else {
            None
        };
        let job = StoredJob::new(record, lease);
        Ok(Some(job).filter(|job| select::matches(self.query, job)))
    }

    /// Returns the number of jobs found by a count.
    pub(crate) fn into_count(self) -> u64 {
        self.count.unwrap_or(0)
    }

    pub(crate) fn into_page(mut self) -> Page {
        let has_more = self.jobs.len() > self.limit;
        self.jobs.truncate(self.limit);
        let next = self
            .jobs
            .last()
            .filter(|_| has_more)
            .map(|job| job.record.key);
        Page {
            jobs: self.jobs,
            next,
        }
    }
}
