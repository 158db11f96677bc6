//! The reader: a connection that cannot write, with one short transaction per call.

use std::sync::Arc;

use ganger_store::encoding::Record;
use ganger_store::graph::{GraphEntry, GraphPage, GraphQuery, MemberState};
use ganger_store::rows::listing::Matches;
use ganger_store::rows::names::{part_name, statistics_name};
use ganger_store::rows::plan::CountPlan;
use ganger_store::rows::row::{
    from_sql, log_key, open_bytes, open_log, open_record, record_at, row_key, to_sql,
};
use ganger_store::rows::secondary_index::id_entry;
use ganger_store::rows::{by_end, values};
use ganger_store::waiting::{JobOverlay, JobRows, Overlaid};
use ganger_store::{
    Count, EndedPage, IndexedValue, LogChunk, Page, Reader, StoreError, StoredJob, ValuePage,
    ValueQuery,
};
use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Day, Graph, InputRow, JobId, JobKey, LeaseRecord, Namespace, Part, Queue,
    StatisticsRecord,
};
use rusqlite::{Connection, OptionalExtension};

use crate::fault::Fault;
use crate::load::read_input;
use crate::lookup::{TableEnds, TableEntries};
use crate::shared::Shared;
use crate::{connect, count, expired_jobs, graph, list};

/// A reader of an [`crate::EmbeddedStore`].
pub struct EmbeddedReader {
    shared: Arc<Shared>,
    connection: Connection,
}

impl EmbeddedReader {
    pub(crate) fn open(shared: Arc<Shared>) -> Result<Self, StoreError> {
        let connection = connect::reader(shared.path())?;
        Ok(Self { shared, connection })
    }

    /// Runs `read` on one committed state that includes everything acknowledged before the call.
    fn read<T>(
        &mut self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        if !self.shared.apply_waiting()? {
            return self.shared.read(read);
        }
        self.read_tables(read)
    }

    /// Runs `read` on one committed state of the tables, which may lack waiting commits.
    fn read_tables<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let found = || -> Result<T, Fault> {
            let tx = self.connection.unchecked_transaction()?;
            let found = read(&tx)?;
            tx.commit()?;
            Ok(found)
        };
        found().map_err(|fault| fault.at(self.shared.path(), "read"))
    }

    /// Reads a property of a job from the commits that wait for the tables, or from the tables. `overlaid` returns
    /// `None` if the waiting commits must be written first.
    fn read_job<T>(
        &mut self,
        key: JobKey,
        overlaid: impl Fn(&Self, &JobOverlay<'_>) -> Result<Option<T>, StoreError>,
        read: impl Fn(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        for _ in 0..OVERLAY_TRIES {
            let waiting = self.shared.queue().of_job(key);
            let Some(overlay) = JobOverlay::new(key, &waiting) else {
                return self.read_tables(&read);
            };
            let Some(found) = overlaid(self, &overlay)? else {
                break;
            };
            // If the tables were written meanwhile, they may already be newer than the commits that were looked up.
            if !self.shared.queue().has_removed_since(&waiting) {
                return Ok(found);
            }
        }
        self.read(read)
    }
}

/// Number of attempts to read a job without writing the commits that wait for the tables.
const OVERLAY_TRIES: u32 = 3;

/// Reads a body by its job's number.
fn body(connection: &Connection, sql: &str, key: JobKey) -> Result<Option<Vec<u8>>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row([to_sql(key.0)], |row| row.get::<_, Option<Vec<u8>>>(0));
    Ok(found.optional()?.flatten())
}

/// Reads the live lease of a job.
pub(crate) fn lease(connection: &Connection, key: JobKey) -> Result<Option<LeaseRecord>, Fault> {
    let sealed = body(connection, "SELECT body FROM leases WHERE key = ?1", key)?;
    Ok(sealed
        .map(|sealed| open_record("leases", &row_key(key), &sealed))
        .transpose()?)
}

/// Reads the rows of the job with this number, live or finished.
fn job_rows(connection: &Connection, key: JobKey) -> Result<Option<JobRows>, Fault> {
    if let Some(sealed) = body(connection, "SELECT body FROM jobs WHERE key = ?1", key)? {
        let record = record_at("jobs", key, &sealed)?;
        let lease = lease(connection, key)?;
        return Ok(Some(JobRows { record, lease }));
    }
    let sealed = body(connection, "SELECT body FROM finished WHERE key = ?1", key)?;
    let record = sealed
        .map(|sealed| record_at("finished", key, &sealed))
        .transpose()?;
    Ok(record.map(|record| JobRows {
        record,
        lease: None,
    }))
}

/// Reads the job with this number, live or finished.
pub(crate) fn job(connection: &Connection, key: JobKey) -> Result<Option<StoredJob>, Fault> {
    let rows = job_rows(connection, key)?;
    Ok(rows.map(|rows| StoredJob::new(rows.record, rows.lease)))
}

fn payload(connection: &Connection, key: JobKey) -> Result<Option<Bytes>, Fault> {
    let sealed = body(connection, "SELECT body FROM payloads WHERE key = ?1", key)?;
    Ok(sealed
        .map(|sealed| open_bytes("payloads", &row_key(key), &sealed))
        .transpose()?)
}

fn result(connection: &Connection, key: JobKey) -> Result<Option<Bytes>, Fault> {
    let sealed = body(
        connection,
        "SELECT result FROM finished WHERE key = ?1",
        key,
    )?;
    Ok(sealed
        .map(|sealed| open_bytes("results", &row_key(key), &sealed))
        .transpose()?)
}

fn inputs(
    connection: &Connection,
    key: JobKey,
    from: u32,
    limit: usize,
) -> Result<Vec<InputRow>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT slot, body FROM inputs WHERE job = ?1 AND slot >= ?2 ORDER BY slot LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query((to_sql(key.0), from, limit))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read_input(key, row.get(0)?, row, 1)?);
    }
    Ok(found)
}

fn find(
    connection: &Connection,
    namespace: &Namespace,
    id: &JobId,
) -> Result<Option<StoredJob>, Fault> {
    let is_it = |job: &StoredJob| job.record.id == *id && job.record.namespace == *namespace;
    // A client may have chosen an id that looks like a generated one.
    if let Some((key, _)) = id.parts()
        && let Some(found) = job(connection, key)?.filter(is_it)
    {
        return Ok(Some(found));
    }
    let mut statement = connection.prepare_cached("SELECT key FROM marks WHERE mark = ?1")?;
    let mark = id_entry(namespace, id);
    let key: Option<i64> = statement.query_row([&mark], |row| row.get(0)).optional()?;
    let Some(key) = key.map(|key| JobKey(from_sql(key))) else {
        return Ok(None);
    };
    let found = job(connection, key)?.filter(is_it);
    found.map(Some).ok_or_else(|| {
        Fault::row(
            "marks",
            key,
            format!("the job {id} that it leads to is not there"),
        )
    })
}

impl Reader for EmbeddedReader {
    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, StoreError> {
        let overlaid = |reader: &Self, overlay: &JobOverlay<'_>| {
            let found = overlay.job(|| reader.read_tables(|tx| job_rows(tx, key)));
            found.map(Some)
        };
        self.read_job(key, overlaid, |tx| job(tx, key))
    }

    fn find(&mut self, namespace: &Namespace, id: &JobId) -> Result<Option<StoredJob>, StoreError> {
        if let Some((key, _)) = id.parts()
            && let Some(found) = self.job(key)?
            && found.record.id == *id
            && found.record.namespace == *namespace
        {
            return Ok(Some(found));
        }
        self.read(|tx| find(tx, namespace, id))
    }

    fn list(&mut self, query: &JobQuery) -> Result<Page, StoreError> {
        let mut listing = list::Listing::new(Matches::page(query));
        while !self.read(|tx| listing.slice(tx))? {}
        Ok(listing.into_matches().into_page())
    }

    fn count(&mut self, query: &JobQuery) -> Result<Count, StoreError> {
        let plan = CountPlan::new(query);
        let indexed = self.read(|tx| count::indexed(tx, &plan))?;
        if !plan.needs_records() {
            return Ok(plan.sum(indexed, Count::default()));
        }
        let mut listing = list::Listing::new(Matches::count(&plan.rest));
        while !self.read(|tx| listing.slice(tx))? {}
        Ok(plan.sum(indexed, listing.into_matches().into_count()))
    }

    fn list_by_end(
        &mut self,
        query: &JobQuery,
        after: Option<u64>,
    ) -> Result<EndedPage, StoreError> {
        self.read(|tx| by_end::page(&mut TableEnds(tx), query, after))
    }

    fn values(
        &mut self,
        namespace: &Namespace,
        of: &IndexedValue,
        query: &ValueQuery,
    ) -> Result<ValuePage, StoreError> {
        self.read(|tx| values::page(&mut TableEntries(tx), namespace, of, query))
    }

    fn payload(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        let overlaid = |reader: &Self, overlay: &JobOverlay<'_>| match overlay.payload() {
            Overlaid::Is(payload) => Ok(Some(payload)),
            Overlaid::AsInTables => reader.read_tables(|tx| payload(tx, key)).map(Some),
        };
        self.read_job(key, overlaid, |tx| payload(tx, key))
    }

    /// Reads all payloads that no waiting commit changes in one transaction: beginning and ending one costs more than
    /// reading a row.
    fn payloads(&mut self, keys: &[JobKey]) -> Vec<Result<Option<Bytes>, StoreError>> {
        let are_waiting = self.shared.queue().change_jobs(keys);
        let in_tables = self.read_tables(|tx| {
            let rows = keys.iter().zip(&are_waiting);
            let rows = rows.map(|(key, is_waiting)| (!is_waiting).then(|| payload(tx, *key)));
            Ok(rows.collect())
        });
        // If the transaction failed, each payload is read by itself and has its own error.
        let in_tables: Vec<_> = in_tables.unwrap_or_else(|_| keys.iter().map(|_| None).collect());
        let read = |(key, found): (&JobKey, Option<Result<_, Fault>>)| match found {
            Some(found) => found.map_err(|fault| fault.at(self.shared.path(), "read")),
            None => self.payload(*key),
        };
        keys.iter().zip(in_tables).map(read).collect()
    }

    fn inputs(
        &mut self,
        key: JobKey,
        from: u32,
        limit: usize,
    ) -> Result<Vec<InputRow>, StoreError> {
        let overlaid = |reader: &Self, overlay: &JobOverlay<'_>| {
            if overlay.changes_inputs() {
                return Ok(None);
            }
            let found = reader.read_tables(|tx| inputs(tx, key, from, limit));
            found.map(Some)
        };
        self.read_job(key, overlaid, |tx| inputs(tx, key, from, limit))
    }

    fn dependents(&mut self, key: JobKey, limit: usize) -> Result<Vec<JobKey>, StoreError> {
        self.read(|tx| {
            let mut statement = tx.prepare_cached(
                "SELECT DISTINCT job FROM inputs WHERE upstream = ?1 ORDER BY job LIMIT ?2",
            )?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = statement.query_map((to_sql(key.0), limit), |row| row.get(0))?;
            Ok(rows
                .map(|job| job.map(|job| JobKey(from_sql(job))))
                .collect::<Result<_, _>>()?)
        })
    }

    fn result(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        let overlaid = |reader: &Self, overlay: &JobOverlay<'_>| match overlay.result() {
            Overlaid::Is(result) => Ok(Some(result)),
            Overlaid::AsInTables => reader.read_tables(|tx| result(tx, key)).map(Some),
        };
        self.read_job(key, overlaid, |tx| result(tx, key))
    }

    fn log(
        &mut self,
        key: JobKey,
        after: (u32, u64),
        bytes: usize,
    ) -> Result<Vec<LogChunk>, StoreError> {
        self.read(|tx| read_log(tx, key, after, bytes))
    }

    fn log_bytes(&mut self, key: JobKey, attempt: u32) -> Result<u64, StoreError> {
        self.read(|tx| {
            let mut statement = tx.prepare_cached(
                "SELECT start, body FROM logs WHERE job = ?1 AND attempt = ?2
                 ORDER BY start DESC LIMIT 1",
            )?;
            let mut rows = statement.query((to_sql(key.0), attempt))?;
            let Some(row) = rows.next()? else {
                return Ok(0);
            };
            let offset = from_sql(row.get(0)?);
            let sealed = row.get_ref(1)?.as_blob().unwrap_or_default();
            let (_, bytes) = open_log(&log_key(key, attempt, offset), sealed)?;
            Ok(offset + u64::try_from(bytes.len()).unwrap_or(u64::MAX))
        })
    }

    fn expired_jobs(
        &mut self,
        query: &ExpiredJobsQuery,
        limit: usize,
    ) -> Result<Vec<ExpiredJob>, StoreError> {
        self.read(|tx| expired_jobs::find(tx, query, limit))
    }

    fn statistics(
        &mut self,
        namespace: &Namespace,
        queue: &Queue,
        day: Day,
    ) -> Result<Option<StatisticsRecord>, StoreError> {
        let name = statistics_name(day.0, namespace.as_bytes(), queue.as_bytes());
        self.read(|tx| named(tx, "statistics", &name))
    }

    fn part(&mut self, namespace: &Namespace, graph: &Graph) -> Result<Option<Part>, StoreError> {
        let name = part_name(namespace, graph);
        self.read(|tx| {
            let Some(record) = named(tx, "parts", &name)? else {
                return Ok(None);
            };
            let jobs: Option<Part> = named(tx, "part_jobs", &name)?;
            Ok(jobs.map(|part| Part { record, ..part }))
        })
    }

    fn graph_page(&mut self, query: &GraphQuery) -> Result<GraphPage, StoreError> {
        self.read(|tx| graph::page(tx, query))
    }

    fn graph_states(
        &mut self,
        namespace: &Namespace,
        of: &Graph,
        after: Option<JobKey>,
        limit: usize,
    ) -> Result<Vec<MemberState>, StoreError> {
        self.read(|tx| graph::states(tx, (namespace, of), after, limit))
    }

    fn graphs(
        &mut self,
        namespace: &Namespace,
        before: Option<&Graph>,
        limit: usize,
    ) -> Result<Vec<GraphEntry>, StoreError> {
        self.read(|tx| graph::names(tx, namespace, before, limit))
    }
}

/// Reads the record of a small row.
fn named<R: Record>(connection: &Connection, table: &str, name: &[u8]) -> Result<Option<R>, Fault> {
    let sql = format!("SELECT body FROM {table} WHERE name = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let sealed: Option<Vec<u8>> = statement.query_row([name], |row| row.get(0)).optional()?;
    Ok(sealed
        .map(|sealed| open_record(table, name, &sealed))
        .transpose()?)
}

fn read_log(
    connection: &Connection,
    key: JobKey,
    after: (u32, u64),
    bytes: usize,
) -> Result<Vec<LogChunk>, Fault> {
    // The chunk that contains the offset may begin before it.
    let mut statement = connection.prepare_cached(
        "SELECT attempt, start, body FROM logs
         WHERE job = ?1 AND (attempt, start) >= (?2, coalesce(
            (SELECT max(start) FROM logs WHERE job = ?1 AND attempt = ?2 AND start <= ?3), 0))
         ORDER BY attempt, start",
    )?;
    let mut rows = statement.query((to_sql(key.0), after.0, to_sql(after.1)))?;
    let mut found = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let Some(row) = rows.next()? else { break };
        let (attempt, offset) = (row.get(0)?, from_sql(row.get(1)?));
        let sealed = row.get_ref(2)?.as_blob().unwrap_or_default();
        let (at, bytes) = open_log(&log_key(key, attempt, offset), sealed)?;
        let chunk = LogChunk {
            attempt,
            offset,
            at,
            bytes,
        };
        if let Some(chunk) = chunk.after(after) {
            left = left.saturating_sub(chunk.bytes.len());
            found.push(chunk);
        }
    }
    Ok(found)
}
