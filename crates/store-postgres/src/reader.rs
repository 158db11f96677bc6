//! The reader: records are read over the commits that wait, lists after those are written.

use std::sync::Arc;

use ganger_store::encoding::Record;
use ganger_store::rows::names::{part_name, statistics_name};
use ganger_store::rows::plan::CountPlan;
use ganger_store::rows::row::{
    from_sql, log_key, open_bytes, open_log, open_record, row_key, slot_key, to_sql,
};
use ganger_store::rows::secondary_index::id_entry;
use ganger_store::waiting::{JobOverlay, JobRows, Overlaid};
use ganger_store::{LogChunk, Page, Reader, StoreError, StoredJob};
use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Change, Day, Graph, InputRow, JobId, JobKey, JobRecord, LeaseRecord, Namespace, Part,
    Queue, StatisticsRecord,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::database::QUERY_MAX;
use crate::fault::Fault;
use crate::session::Parameter;
use crate::shared::Shared;
use crate::{count, expired_jobs, list};

/// Number of attempts to read a job without writing the rows of waiting commits.
const OVERLAY_TRIES: u32 = 3;
/// Pieces of a log read at a time.
const LOG_PIECES: i64 = 256;

/// A reader of a [`crate::PostgresStore`].
pub struct PostgresReader {
    shared: Arc<Shared>,
}

/// Runs statements for a reader: `{s}` stands for the schema of the shard.
pub(crate) struct Tables<'a> {
    pub(crate) shared: &'a Shared,
}

impl Tables<'_> {
    pub(crate) fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Fault> {
        let sql = self.shared.names.sql(sql);
        self.shared.database.query(&sql, parameters, QUERY_MAX)
    }

    /// Reads the only column of the only row.
    fn body(&self, sql: &str, key: JobKey) -> Result<Option<Vec<u8>>, Fault> {
        let number = to_sql(key.0);
        let rows = self.query(sql, &[(&number, Type::INT8)])?;
        let body: Option<Option<Vec<u8>>> = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(body.flatten())
    }

    /// Reads the rows of the job with this number, live or finished.
    fn job_rows(&self, key: JobKey) -> Result<Option<JobRows>, Fault> {
        let number = to_sql(key.0);
        let rows = self.query(
            "SELECT (SELECT body FROM {s}.jobs WHERE key = $1), (SELECT body FROM {s}.leases WHERE key = $1),
                (SELECT body FROM {s}.finished WHERE key = $1)",
            &[(&number, Type::INT8)],
        )?;
        match rows.first() {
            Some(row) => job_rows_of(row, 0, key),
            None => Ok(None),
        }
    }

    fn payload(&self, key: JobKey) -> Result<Option<Bytes>, Fault> {
        let sealed = self.body("SELECT body FROM {s}.payloads WHERE key = $1", key)?;
        Ok(sealed
            .map(|sealed| open_bytes("payloads", &row_key(key), &sealed))
            .transpose()?)
    }

    fn result(&self, key: JobKey) -> Result<Option<Bytes>, Fault> {
        let sealed = self.body("SELECT result FROM {s}.finished WHERE key = $1", key)?;
        Ok(sealed
            .map(|sealed| open_bytes("results", &row_key(key), &sealed))
            .transpose()?)
    }

    fn inputs(&self, key: JobKey, from: u32, limit: usize) -> Result<Vec<InputRow>, Fault> {
        let (number, from, limit) = (to_sql(key.0), i64::from(from), limit_of(limit));
        let rows = self.query(
            "SELECT slot, body FROM {s}.inputs WHERE job = $1 AND slot >= $2 ORDER BY slot LIMIT $3",
            &[
                (&number, Type::INT8),
                (&from, Type::INT8),
                (&limit, Type::INT8),
            ],
        )?;
        rows.iter()
            .map(|row| {
                let (slot, body): (i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
                let slot = u32::try_from(slot)
                    .map_err(|_| Fault::row("inputs", key, "its slot is out of range"))?;
                Ok(open_record("inputs", &slot_key(key, slot), body)?)
            })
            .collect()
    }

    /// Finds the number of the job with this id that a client chose.
    fn key_of(&self, namespace: &Namespace, id: &JobId) -> Result<Option<JobKey>, Fault> {
        let mark = id_entry(namespace, id);
        let rows = self.query(
            "SELECT key FROM {s}.marks WHERE mark = $1 ORDER BY key LIMIT 1",
            &[(&mark, Type::BYTEA)],
        )?;
        let key: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(key.map(|key| JobKey(from_sql(key))))
    }

    fn named<R: Record>(&self, table: &str, name: &[u8]) -> Result<Option<R>, Fault> {
        let sql = format!("SELECT body FROM {{s}}.{table} WHERE name = $1");
        let rows = self.query(&sql, &[(&name, Type::BYTEA)])?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(open_record(table, name, row.try_get(0)?)?))
    }

    fn log_pieces(
        &self,
        key: JobKey,
        (attempt, offset): (u32, u64),
        is_first: bool,
    ) -> Result<Vec<LogChunk>, Fault> {
        let number = to_sql(key.0);
        let (after, start) = (i64::from(attempt), to_sql(offset));
        // The chunk that contains the offset may begin before it.
        let from = if is_first {
            "(attempt, start) >= ($2, coalesce((SELECT max(start) FROM {s}.logs
                WHERE job = $1 AND attempt = $2 AND start <= $3), 0))"
        } else {
            "(attempt, start) > ($2, $3)"
        };
        let sql = format!(
            "SELECT attempt, start, body FROM {{s}}.logs WHERE job = $1 AND {from}
             ORDER BY attempt, start LIMIT {LOG_PIECES}"
        );
        let parameters: [Parameter<'_>; 3] = [
            (&number, Type::INT8),
            (&after, Type::INT8),
            (&start, Type::INT8),
        ];
        let rows = self.query(&sql, &parameters)?;
        rows.iter()
            .map(|row| {
                let (attempt, start, sealed): (i64, i64, &[u8]) =
                    (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                let attempt = u32::try_from(attempt)
                    .map_err(|_| Fault::row("logs", key, "its attempt is out of range"))?;
                let offset = from_sql(start);
                let (at, bytes) = open_log(&log_key(key, attempt, offset), sealed)?;
                Ok(LogChunk {
                    attempt,
                    offset,
                    at,
                    bytes,
                })
            })
            .collect()
    }
}

/// Reads a job from three columns: its live row, its lease, its finished row. `None` if it has neither row.
pub(crate) fn job_rows_of(row: &Row, first: usize, key: JobKey) -> Result<Option<JobRows>, Fault> {
    let live: Option<&[u8]> = row.try_get(first)?;
    let finished: Option<&[u8]> = row.try_get(first + 2)?;
    if let Some(sealed) = live {
        let record = record_at("jobs", key, sealed)?;
        let lease: Option<&[u8]> = row.try_get(first + 1)?;
        let lease = lease
            .map(|sealed| open_record::<LeaseRecord>("leases", &row_key(key), sealed))
            .transpose()?;
        return Ok(Some(JobRows { record, lease }));
    }
    let record = finished
        .map(|sealed| record_at("finished", key, sealed))
        .transpose()?;
    Ok(record.map(|record| JobRows {
        record,
        lease: None,
    }))
}

pub(crate) fn record_at(table: &str, key: JobKey, sealed: &[u8]) -> Result<JobRecord, Fault> {
    let record: JobRecord = open_record(table, &row_key(key), sealed)?;
    if record.key != key {
        return Err(Fault::row(table, key, "it holds the record of another job"));
    }
    Ok(record)
}

pub(crate) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl PostgresReader {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
        }
    }

    fn tables(&self) -> Tables<'_> {
        Tables {
            shared: &self.shared,
        }
    }

    /// Reads after the rows of everything acknowledged before the call are written.
    fn settled<T>(
        &self,
        read: impl FnOnce(&Tables<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let settled = self.shared.settle();
        let found = settled.and_then(|()| read(&self.tables()));
        found.map_err(|fault| self.error(fault))
    }

    fn error(&self, fault: Fault) -> StoreError {
        fault.at(&self.shared.names.label, "read")
    }

    /// Reads a property of a job from waiting commits, or from the tables. `overlaid` returns `None` if the rows of
    /// waiting commits must be written first.
    fn read_job<T>(
        &self,
        key: JobKey,
        overlaid: impl Fn(&Tables<'_>, &JobOverlay<'_>) -> Result<Option<T>, Fault>,
        read: impl Fn(&Tables<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let tables = self.tables();
        for _ in 0..OVERLAY_TRIES {
            let waiting = self.shared.queue.of_job(key);
            let Some(overlay) = JobOverlay::new(key, &waiting) else {
                return read(&tables).map_err(|fault| self.error(fault));
            };
            let found = overlaid(&tables, &overlay).map_err(|fault| self.error(fault))?;
            let Some(found) = found else {
                break;
            };
            // If rows were written meanwhile, they may already be newer than the commits that were looked up.
            if !self.shared.queue.has_removed_since(&waiting) {
                return Ok(found);
            }
        }
        self.settled(read)
    }

    /// Returns the number of a job with this id in commits that wait.
    fn key_in_waiting(&self, namespace: &Namespace, id: &JobId) -> Option<JobKey> {
        let commits = self.shared.queue.commits();
        let changes = commits.iter().flat_map(|commit| &commit.changes);
        let records = changes.filter_map(|change| match change {
            Change::PutJob(record)
            | Change::FinishJob { record, .. }
            | Change::PutFinished(record) => Some(record),
            _ => None,
        });
        let found = records.filter(|record| record.id == *id && record.namespace == *namespace);
        found.last().map(|record| record.key)
    }
}

impl Reader for PostgresReader {
    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, StoreError> {
        let overlaid = |tables: &Tables<'_>, overlay: &JobOverlay<'_>| {
            overlay.job(|| tables.job_rows(key)).map(Some)
        };
        self.read_job(key, overlaid, |tables| {
            let rows = tables.job_rows(key)?;
            Ok(rows.map(|rows| StoredJob::new(rows.record, rows.lease)))
        })
    }

    fn find(&mut self, namespace: &Namespace, id: &JobId) -> Result<Option<StoredJob>, StoreError> {
        let is_it = |job: &StoredJob| job.record.id == *id && job.record.namespace == *namespace;
        // A client may have chosen an id that looks like a generated one.
        if let Some((key, _)) = id.parts()
            && let Some(found) = self.job(key)?.filter(is_it)
        {
            return Ok(Some(found));
        }
        // What is not among the waiting commits, looked at first, has its rows written.
        let key = match self.key_in_waiting(namespace, id) {
            Some(key) => Some(key),
            None => {
                let found = self.tables().key_of(namespace, id);
                found.map_err(|fault| self.error(fault))?
            }
        };
        match key {
            Some(key) => Ok(self.job(key)?.filter(is_it)),
            None => Ok(None),
        }
    }

    fn list(&mut self, query: &JobQuery) -> Result<Page, StoreError> {
        self.settled(|tables| {
            let mut listing = list::Listing::new(query);
            while !listing.slice(tables)? {}
            Ok(listing.into_page())
        })
    }

    fn count(&mut self, query: &JobQuery) -> Result<u64, StoreError> {
        self.settled(|tables| {
            let plan = CountPlan::new(query);
            let indexed = count::indexed(tables, &plan)?;
            if !plan.needs_records() {
                return Ok(indexed);
            }
            let mut listing = list::Listing::counting(&plan.rest);
            while !listing.slice(tables)? {}
            Ok(indexed + listing.into_count())
        })
    }

    fn payload(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        let overlaid = |tables: &Tables<'_>, overlay: &JobOverlay<'_>| match overlay.payload() {
            Overlaid::Is(payload) => Ok(Some(payload)),
            Overlaid::AsInTables => tables.payload(key).map(Some),
        };
        self.read_job(key, overlaid, |tables| tables.payload(key))
    }

    fn inputs(
        &mut self,
        key: JobKey,
        from: u32,
        limit: usize,
    ) -> Result<Vec<InputRow>, StoreError> {
        let overlaid = |tables: &Tables<'_>, overlay: &JobOverlay<'_>| {
            if overlay.changes_inputs() {
                return Ok(None);
            }
            tables.inputs(key, from, limit).map(Some)
        };
        self.read_job(key, overlaid, |tables| tables.inputs(key, from, limit))
    }

    fn dependents(&mut self, key: JobKey, limit: usize) -> Result<Vec<JobKey>, StoreError> {
        let (number, limit) = (to_sql(key.0), limit_of(limit));
        self.settled(|tables| {
            let rows = tables.query(
                "SELECT DISTINCT job FROM {s}.inputs WHERE dependency = $1 ORDER BY job LIMIT $2",
                &[(&number, Type::INT8), (&limit, Type::INT8)],
            )?;
            let keys = rows.iter().map(|row| Ok(JobKey(from_sql(row.try_get(0)?))));
            keys.collect()
        })
    }

    fn result(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        let overlaid = |tables: &Tables<'_>, overlay: &JobOverlay<'_>| match overlay.result() {
            Overlaid::Is(result) => Ok(Some(result)),
            Overlaid::AsInTables => tables.result(key).map(Some),
        };
        self.read_job(key, overlaid, |tables| tables.result(key))
    }

    fn log(
        &mut self,
        key: JobKey,
        after: (u32, u64),
        bytes: usize,
    ) -> Result<Vec<LogChunk>, StoreError> {
        self.settled(|tables| {
            let mut found = Vec::new();
            let (mut from, mut left, mut is_first) = (after, bytes, true);
            while left > 0 {
                let pieces = tables.log_pieces(key, from, is_first)?;
                let Some(last) = pieces.last() else { break };
                (from, is_first) = ((last.attempt, last.offset), false);
                for chunk in pieces {
                    let Some(chunk) = chunk.after(after).filter(|_| left > 0) else {
                        continue;
                    };
                    left = left.saturating_sub(chunk.bytes.len());
                    found.push(chunk);
                }
            }
            Ok(found)
        })
    }

    fn expired_jobs(
        &mut self,
        query: &ExpiredJobsQuery,
        limit: usize,
    ) -> Result<Vec<ExpiredJob>, StoreError> {
        self.settled(|tables| expired_jobs::find(tables, query, limit))
    }

    fn statistics(
        &mut self,
        namespace: &Namespace,
        queue: &Queue,
        day: Day,
    ) -> Result<Option<StatisticsRecord>, StoreError> {
        let name = statistics_name(day.0, namespace.as_bytes(), queue.as_bytes());
        self.settled(|tables| tables.named("statistics", &name))
    }

    fn part(&mut self, namespace: &Namespace, graph: &Graph) -> Result<Option<Part>, StoreError> {
        let name = part_name(namespace, graph);
        self.settled(|tables| {
            let rows = tables.query(
                "SELECT p.body, j.body FROM {s}.parts p JOIN {s}.part_jobs j USING (name) WHERE name = $1",
                &[(&name, Type::BYTEA)],
            )?;
            let Some(row) = rows.first() else {
                return Ok(None);
            };
            let record = open_record("parts", &name, row.try_get(0)?)?;
            let part: Part = open_record("part_jobs", &name, row.try_get(1)?)?;
            Ok(Some(Part { record, ..part }))
        })
    }
}
