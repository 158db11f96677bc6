//! The reader of the memory store; each call holds its lock.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Day, Graph, InputRow, InputState, JobId, JobKey, JobRecord, Namespace, Part, Queue,
    StatisticsRecord, StoredJob,
};

use super::lists::{MemoryEnds, MemoryEntries};
use super::rows::Rows;
use super::{State, lock};
use crate::error::StoreError;
use crate::graph::GraphEntry;
use crate::reader::{
    Count, EndedPage, IndexedValue, LogChunk, Page, Reader, ValuePage, ValueQuery,
};
use crate::rows::listing::Matches;
use crate::rows::secondary_index::{graph_entries, graph_entry};
use crate::rows::{by_end, values};

/// A reader of a [`super::MemoryStore`].
#[derive(Clone, Debug)]
pub struct MemoryReader {
    state: Arc<Mutex<State>>,
}

impl MemoryReader {
    pub(super) fn new(state: Arc<Mutex<State>>) -> Self {
        Self { state }
    }
}

pub(super) fn stored(rows: &Rows, record: &JobRecord) -> StoredJob {
    StoredJob::new(record.clone(), rows.leases.get(&record.key).cloned())
}

/// Looks at records, in this order, until the page is full or the budget is used up.
fn look_at<'a, 'q>(
    rows: &Rows,
    records: impl Iterator<Item = &'a JobRecord>,
    mut matches: Matches<'q>,
) -> Matches<'q> {
    for record in records {
        let found = matches.evaluate(stored(rows, record));
        if matches.add(record.key, found) {
            return matches;
        }
    }
    matches.end();
    matches
}

impl Reader for MemoryReader {
    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, StoreError> {
        let rows = &lock(&self.state).rows;
        Ok(rows.jobs.get(&key).map(|record| stored(rows, record)))
    }

    fn find(&mut self, namespace: &Namespace, id: &JobId) -> Result<Option<StoredJob>, StoreError> {
        let rows = &lock(&self.state).rows;
        let key = rows.ids.get(&(namespace.clone(), id.clone()));
        Ok(key
            .and_then(|key| rows.jobs.get(key))
            .map(|record| stored(rows, record)))
    }

    fn list(&mut self, query: &JobQuery) -> Result<Page, StoreError> {
        let rows = &lock(&self.state).rows;
        let (from, until) = match (query.after, query.newest_first) {
            (None, _) => (Bound::Unbounded, Bound::Unbounded),
            (Some(after), false) => (Bound::Excluded(after), Bound::Unbounded),
            (Some(after), true) => (Bound::Unbounded, Bound::Excluded(after)),
        };
        let range = rows.jobs.range((from, until)).map(|(_, record)| record);
        let ordered: Box<dyn Iterator<Item = &JobRecord>> = if query.newest_first {
            Box::new(range.rev())
        } else {
            Box::new(range)
        };
        let matches = look_at(rows, ordered, Matches::page(query));
        Ok(matches.into_page())
    }

    fn count(&mut self, query: &JobQuery) -> Result<Count, StoreError> {
        let rows = &lock(&self.state).rows;
        let matches = look_at(rows, rows.jobs.values(), Matches::count(query));
        Ok(matches.into_count())
    }

    fn list_by_end(
        &mut self,
        query: &JobQuery,
        after: Option<u64>,
    ) -> Result<EndedPage, StoreError> {
        let Ok(page) = by_end::page(&mut MemoryEnds(&lock(&self.state).rows), query, after);
        Ok(page)
    }

    fn values(
        &mut self,
        namespace: &Namespace,
        of: &IndexedValue,
        query: &ValueQuery,
    ) -> Result<ValuePage, StoreError> {
        let mut entries = MemoryEntries::of(&lock(&self.state).rows);
        let Ok(page) = values::page(&mut entries, namespace, of, query);
        Ok(page)
    }

    fn payload(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        Ok(lock(&self.state).rows.payloads.get(&key).cloned())
    }

    fn inputs(
        &mut self,
        key: JobKey,
        from: u32,
        limit: usize,
    ) -> Result<Vec<InputRow>, StoreError> {
        let state = lock(&self.state);
        let rows = state
            .rows
            .inputs
            .range((key, from)..=(key, u32::MAX))
            .take(limit);
        Ok(rows
            .map(|((job, slot), state)| InputRow {
                job: *job,
                slot: *slot,
                state: state.clone(),
            })
            .collect())
    }

    fn dependents(&mut self, key: JobKey, limit: usize) -> Result<Vec<JobKey>, StoreError> {
        let state = lock(&self.state);
        let mut jobs: Vec<JobKey> = state
            .rows
            .inputs
            .iter()
            .filter(|(_, input)| match input {
                InputState::Missing { dependency, .. }
                | InputState::Delivered { dependency, .. } => *dependency == key,
                InputState::Value(_)
                | InputState::Remote { .. }
                | InputState::Received { .. }
                | InputState::Ignored { .. } => false,
            })
            .map(|((job, _), _)| *job)
            .collect();
        jobs.dedup();
        jobs.truncate(limit);
        Ok(jobs)
    }

    fn result(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        Ok(lock(&self.state).rows.results.get(&key).cloned())
    }

    fn log(
        &mut self,
        key: JobKey,
        after: (u32, u64),
        bytes: usize,
    ) -> Result<Vec<LogChunk>, StoreError> {
        let state = lock(&self.state);
        let mut left = bytes;
        let rows = state
            .rows
            .logs
            .range((key, 0, 0)..=(key, u32::MAX, u64::MAX));
        Ok(rows
            .filter_map(|(_, chunk)| chunk.clone().after(after))
            .take_while(|chunk| {
                let is_wanted = left > 0;
                left = left.saturating_sub(chunk.bytes.len());
                is_wanted
            })
            .collect())
    }

    fn log_bytes(&mut self, key: JobKey, attempt: u32) -> Result<u64, StoreError> {
        let state = lock(&self.state);
        let mut chunks = state
            .rows
            .logs
            .range((key, attempt, 0)..=(key, attempt, u64::MAX));
        let last = chunks.next_back();
        Ok(last.map_or(0, |(_, chunk)| chunk.end()))
    }

    fn expired_jobs(
        &mut self,
        query: &ExpiredJobsQuery,
        limit: usize,
    ) -> Result<Vec<ExpiredJob>, StoreError> {
        let rows = &lock(&self.state).rows;
        Ok(select_expired_jobs(rows, query, limit))
    }

    fn statistics(
        &mut self,
        namespace: &Namespace,
        queue: &Queue,
        day: Day,
    ) -> Result<Option<StatisticsRecord>, StoreError> {
        let key = (day, namespace.clone(), queue.clone());
        Ok(lock(&self.state).rows.statistics.get(&key).cloned())
    }

    fn part(&mut self, namespace: &Namespace, graph: &Graph) -> Result<Option<Part>, StoreError> {
        Ok(lock(&self.state).rows.shards.part(namespace, graph))
    }

    fn graphs(
        &mut self,
        namespace: &Namespace,
        before: Option<&Graph>,
        limit: usize,
    ) -> Result<Vec<GraphEntry>, StoreError> {
        let state = lock(&self.state);
        let jobs = state.rows.jobs.values();
        let mut found = BTreeMap::new();
        for job in jobs.filter(|job| job.namespace == *namespace) {
            if let Some(graph) = &job.graph {
                let entry = graph_entry(namespace, graph);
                found.entry(entry).or_insert((graph, job));
            }
        }
        let before = before.map_or(graph_entries(namespace).1, |it| graph_entry(namespace, it));
        let found = found.range(..before).rev().take(limit);
        let entries = found.map(|(_, (graph, first))| GraphEntry {
            graph: Graph::clone(graph),
            first: first.key,
            submitted_at: first.created_at,
        });
        Ok(entries.collect())
    }
}

fn select_expired_jobs(rows: &Rows, query: &ExpiredJobsQuery, limit: usize) -> Vec<ExpiredJob> {
    let ended = |wanted: &dyn Fn(&JobRecord, &ganger_types::Finished) -> bool| {
        let mut found: Vec<_> = rows
            .jobs
            .values()
            .filter_map(|job| job.finished.as_ref().map(|end| (end, job)))
            .filter(|(end, job)| wanted(job, end))
            .collect();
        found.sort_by_key(|(end, _)| end.order);
        found
    };
    let (mut found, beyond_count) = match query {
        ExpiredJobsQuery::ByAge {
            namespace,
            queue,
            outcome,
            before,
        } => {
            let mut found = ended(&|job, end| {
                job.namespace == *namespace
                    && job.queue == *queue
                    && end.outcome == *outcome
                    && end.keep_until.is_none()
                    && end.at <= *before
            });
            found.sort_by_key(|(end, job)| (end.at, job.key));
            (found, false)
        }
        ExpiredJobsQuery::ByCount {
            namespace,
            queue,
            outcome,
            excess,
        } => {
            let mut found = ended(&|job, end| {
                job.namespace == *namespace && job.queue == *queue && end.outcome == *outcome
            });
            found.truncate(usize::try_from(*excess).unwrap_or(usize::MAX));
            found.retain(|(end, _)| end.keep_until.is_none());
            (found, true)
        }
        ExpiredJobsQuery::ByOwnTime { before } => {
            let mut found = ended(&|_, end| {
                end.keep_until
                    .flatten()
                    .is_some_and(|until| until <= *before)
            });
            found.sort_by_key(|(end, job)| (end.keep_until, job.key));
            (found, false)
        }
    };
    found.truncate(limit);
    found
        .into_iter()
        .map(|(_, job)| ExpiredJob {
            record: Box::new(job.clone()),
            beyond_count,
        })
        .collect()
}
