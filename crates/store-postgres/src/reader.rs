//! The reader: records are read over the commits that wait, lists after those are written.

use std::sync::Arc;

use ganger_store::graph::GraphEntry;
use ganger_store::rows::names::{part_name, statistics_name};
use ganger_store::rows::plan::CountPlan;
use ganger_store::rows::row::{from_sql, open_record, record_at, to_sql};
use ganger_store::rows::secondary_index::{graph_entries, graph_entry, graph_of};
use ganger_store::rows::{by_end, values};
use ganger_store::waiting::{JobOverlay, Overlaid};
use ganger_store::{
    Count, EndedPage, IndexedValue, LogChunk, Page, Reader, StoreError, StoredJob, ValuePage,
    ValueQuery,
};
use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Change, Day, Graph, InputRow, JobId, JobKey, Namespace, Part, Queue, StatisticsRecord,
};
use tokio_postgres::types::Type;

use crate::fault::Fault;
use crate::lookup::{TableEnds, TableEntries};
use crate::shared::Shared;
use crate::tables::{Tables, limit_of};
use crate::{count, expired_jobs, list};

/// Number of attempts to read a job without writing the rows of waiting commits.
const OVERLAY_TRIES: u32 = 3;

/// A reader of a [`crate::PostgresStore`].
pub struct PostgresReader {
    shared: Arc<Shared>,
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
    fn settled<T>(&self, read: impl Fn(&Tables<'_>) -> Result<T, Fault>) -> Result<T, StoreError> {
        let found = self.shared.read_rows(|| {
            self.shared.settle()?;
            read(&self.tables())
        });
        found.map_err(|fault| self.error(fault))
    }

    fn error(&self, fault: Fault) -> StoreError {
        fault.at(&self.shared.backend.names.label, "read")
    }

    /// Reads a property of a job from waiting commits, or from the tables. `overlaid` returns `None` if the rows of
    /// waiting commits must be written first.
    fn read_job<T>(
        &self,
        key: JobKey,
        overlaid: impl Fn(&Tables<'_>, &JobOverlay<'_>) -> Result<Option<T>, Fault>,
        read: impl Fn(&Tables<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let found = self.shared.read_rows(|| {
            let tables = self.tables();
            for _ in 0..OVERLAY_TRIES {
                let waiting = self.shared.queue.of_job(key);
                let Some(overlay) = JobOverlay::new(key, &waiting) else {
                    return read(&tables);
                };
                let Some(found) = overlaid(&tables, &overlay)? else {
                    break;
                };
                // If rows were written meanwhile, they may already be newer than the commits that were looked up.
                if !self.shared.queue.has_removed_since(&waiting) {
                    return Ok(found);
                }
            }
            self.shared.settle()?;
            read(&tables)
        });
        found.map_err(|fault| self.error(fault))
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
                let found = self
                    .shared
                    .read_rows(|| self.tables().key_of(namespace, id));
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
            let mut listing = list::Listing::page(query);
            while !listing.slice(tables)? {}
            Ok(listing.into_matches().into_page())
        })
    }

    fn count(&mut self, query: &JobQuery) -> Result<Count, StoreError> {
        self.settled(|tables| {
            let plan = CountPlan::new(query);
            let indexed = count::indexed(tables, &plan)?;
            if !plan.needs_records() {
                return Ok(plan.sum(indexed, Count::default()));
            }
            let mut listing = list::Listing::count(&plan.rest);
            while !listing.slice(tables)? {}
            Ok(plan.sum(indexed, listing.into_matches().into_count()))
        })
    }

    fn list_by_end(
        &mut self,
        query: &JobQuery,
        after: Option<u64>,
    ) -> Result<EndedPage, StoreError> {
        self.settled(|tables| by_end::page(&mut TableEnds(tables), query, after))
    }

    fn values(
        &mut self,
        namespace: &Namespace,
        of: &IndexedValue,
        query: &ValueQuery,
    ) -> Result<ValuePage, StoreError> {
        self.settled(|tables| values::page(&mut TableEntries(tables), namespace, of, query))
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

    fn log_bytes(&mut self, key: JobKey, attempt: u32) -> Result<u64, StoreError> {
        self.settled(|tables| tables.log_bytes(key, attempt))
    }

    fn expired_jobs(
        &mut self,
        query: &ExpiredJobsQuery,
        limit: usize,
    ) -> Result<Vec<ExpiredJob>, StoreError> {
        let shared = Arc::clone(&self.shared);
        let _searching = shared.searching();
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

    fn graphs(
        &mut self,
        namespace: &Namespace,
        before: Option<&Graph>,
        limit: usize,
    ) -> Result<Vec<GraphEntry>, StoreError> {
        let (first, end) = graph_entries(namespace);
        let before = before.map_or(end, |graph| graph_entry(namespace, graph));
        let limit = limit_of(limit);
        self.settled(|tables| {
            let rows = tables.query(
                "SELECT mark, key, j.body, f.body FROM (
                     SELECT mark, min(key) AS key FROM {s}.marks WHERE mark >= $1 AND mark < $2
                     GROUP BY mark ORDER BY mark DESC LIMIT $3
                 ) m LEFT JOIN {s}.jobs j USING (key) LEFT JOIN {s}.finished f USING (key)
                 ORDER BY mark DESC",
                &[
                    (&first, Type::BYTEA),
                    (&before, Type::BYTEA),
                    (&limit, Type::INT8),
                ],
            )?;
            let mut found = Vec::with_capacity(rows.len());
            for row in &rows {
                let first = JobKey(from_sql(row.try_get(1)?));
                let live: Option<&[u8]> = row.try_get(2)?;
                let (table, sealed) = match live {
                    Some(sealed) => ("jobs", sealed),
                    None => ("finished", row.try_get(3)?),
                };
                let graph = graph_of(row.try_get(0)?);
                let submitted_at = record_at(table, first, sealed)?.created_at;
                found.extend(graph.map(|graph| GraphEntry {
                    graph,
                    first,
                    submitted_at,
                }));
            }
            Ok(found)
        })
    }
}
