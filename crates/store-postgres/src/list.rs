//! Listings in slices, each one statement: no cursor, and no snapshot that is held.
//!
//! A slice looks at a bounded number of rows and says up to which number it has looked, so that a rare job among
//! millions is found in several short statements. The secondary index and the leases lead straight to the few jobs
//! they name. Queue and outcome of finished jobs are columns, so rows of others are not sent; further conditions are
//! evaluated here, on the front of each record.

use ganger_store::StoredJob;
use ganger_store::rows::listing::Matches;
use ganger_store::rows::plan::Source;
use ganger_store::rows::row::{from_sql, open_record, row_key};
use ganger_types::query::JobQuery;
use ganger_types::{JobKey, LeaseRecord, Queue};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::fault::Fault;
use crate::session::Parameter;
use crate::tables::{Tables, limit_of};

/// Least and most rows that a slice looks at.
const SLICE_ROWS_MIN: usize = 64;
const SLICE_ROWS_MAX: usize = 5_000;
/// Bytes of a slice from which the next one looks at fewer rows.
const SLICE_BYTES: usize = 4 << 20;

/// A page of a listing, or a count, while it is collected.
pub(crate) struct Listing<'a> {
    matches: Matches<'a>,
    source: Source,
    sql: String,
    /// Number of the last job looked at.
    last: i64,
    /// Rows that the next slice looks at.
    rows: usize,
}

/// Returns a statement for (number, live row, lease, finished row) of the next jobs. It takes the last number, the
/// number of rows, the namespace, the queue or NULL, the outcomes, and the index entry or NULL.
fn sql_of(source: &Source, newest_first: bool) -> String {
    let (beyond, order) = if newest_first {
        ("<", "DESC")
    } else {
        (">", "ASC")
    };
    let next = format!("key {beyond} $1 ORDER BY key {order} LIMIT $2");
    let live = format!(
        "SELECT key, j.body AS live, l.body AS lease, NULL::bytea AS finished
         FROM (SELECT key, body FROM {{s}}.jobs WHERE {next}) j LEFT JOIN {{s}}.leases l USING (key)"
    );
    let finished = format!(
        "SELECT key, NULL::bytea AS live, NULL::bytea AS lease,
            CASE WHEN outcome = ANY($5) AND place = ANY(ARRAY(SELECT id FROM {{s}}.places
                WHERE namespace = $3 AND ($4::bytea IS NULL OR queue = $4))) THEN body END AS finished
         FROM (SELECT key, outcome, place, body FROM {{s}}.finished WHERE {next}) f"
    );
    let joined = |keys: &str| {
        format!(
            "SELECT key, j.body AS live, l.body AS lease, f.body AS finished FROM ({keys}) k
             LEFT JOIN {{s}}.jobs j USING (key) LEFT JOIN {{s}}.leases l USING (key)
             LEFT JOIN {{s}}.finished f USING (key)"
        )
    };
    let rows = match source {
        Source::IndexEntry(_) => joined(&format!(
            "SELECT key FROM {{s}}.marks WHERE mark = $6 AND {next}"
        )),
        Source::Leases => joined(&format!("SELECT key FROM {{s}}.leases WHERE {next}")),
        Source::Finished => finished,
        Source::Live => live,
        Source::All => format!("({live}) UNION ALL ({finished})"),
    };
    format!("SELECT key, live, lease, finished FROM ({rows}) r ORDER BY key {order} LIMIT $2")
}

impl<'a> Listing<'a> {
    /// Starts a page, with a first slice of about its size.
    pub(crate) fn page(query: &'a JobQuery) -> Self {
        let matches = Matches::page(query);
        let rows = (matches.limit() + 1).clamp(SLICE_ROWS_MIN, SLICE_ROWS_MAX);
        Self::new(matches, rows)
    }

    /// Starts a count, which goes to the end.
    pub(crate) fn count(query: &'a JobQuery) -> Self {
        Self::new(Matches::count(query), SLICE_ROWS_MAX)
    }

    fn new(matches: Matches<'a>, rows: usize) -> Self {
        let source = Source::of(matches.query);
        let sql = sql_of(&source, matches.query.newest_first);
        Self {
            source,
            sql,
            last: matches.start(),
            rows,
            matches,
        }
    }

    /// Reads the next slice; returns true once the page is full or no rows are left.
    pub(crate) fn slice(&mut self, tables: &Tables<'_>) -> Result<bool, Fault> {
        let rows = self.read(tables)?;
        let is_last = rows.len() < self.rows;
        let mut bytes = 0;
        for row in &rows {
            let number: i64 = row.try_get(0)?;
            let found = self.judge(JobKey(from_sql(number)), row, &mut bytes)?;
            self.last = number;
            if self.matches.add(JobKey(from_sql(number)), found) {
                return Ok(true);
            }
        }
        self.rows = if bytes > SLICE_BYTES {
            self.rows / 2
        } else {
            self.rows * 2
        }
        .clamp(SLICE_ROWS_MIN, SLICE_ROWS_MAX);
        if is_last {
            self.matches.end();
        }
        Ok(is_last)
    }

    fn read(&self, tables: &Tables<'_>) -> Result<Vec<Row>, Fault> {
        let limit = limit_of(self.rows);
        let namespace = self.matches.query.namespace.as_bytes();
        let queue = self.matches.query.queue.as_ref().map(Queue::as_bytes);
        let states = self.matches.query.states.iter();
        let outcomes: Vec<i16> = states.map(|state| state.number().into()).collect();
        let mark = match &self.source {
            Source::IndexEntry(mark) => Some(mark.as_slice()),
            _ => None,
        };
        let parameters: [Parameter<'_>; 6] = [
            (&self.last, Type::INT8),
            (&limit, Type::INT8),
            (&namespace, Type::BYTEA),
            (&queue, Type::BYTEA),
            (&outcomes, Type::INT2_ARRAY),
            (&mark, Type::BYTEA),
        ];
        tables.query(&self.sql, &parameters)
    }

    /// Evaluates one row; decodes the whole record only if its front may match.
    fn judge(
        &mut self,
        key: JobKey,
        row: &Row,
        bytes: &mut usize,
    ) -> Result<Option<StoredJob>, Fault> {
        let live: Option<&[u8]> = row.try_get(1)?;
        let finished: Option<&[u8]> = row.try_get(3)?;
        let (table, sealed) = match (live, finished) {
            (Some(sealed), _) => ("jobs", sealed),
            (None, Some(sealed)) => ("finished", sealed),
            // The columns said that it does not match.
            (None, None) if matches!(self.source, Source::Finished | Source::All) => {
                return Ok(None);
            }
            (None, None) => {
                let what = "the job that it leads to is not there";
                return Err(Fault::row("marks", key, what));
            }
        };
        *bytes += sealed.len();
        self.matches.judge(table, key, sealed, || {
            let lease: Option<&[u8]> = row.try_get(2)?;
            let lease = lease.filter(|_| live.is_some());
            let lease =
                lease.map(|sealed| open_record::<LeaseRecord>("leases", &row_key(key), sealed));
            Ok(lease.transpose()?)
        })
    }

    /// Returns what was collected.
    pub(crate) fn into_matches(self) -> Matches<'a> {
        self.matches
    }
}
