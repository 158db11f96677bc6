//! Lists in other orders than that of numbers, counts from memory, and values of the index.

use ganger_store::select::{matches, page_limit};
use ganger_store::{
    Count, EndedPage, IndexedValue, Looked, Reader, StoreError, StoredJob, ValuePage, ValueQuery,
};
use ganger_types::query::{JobQuery, Query, ReadyPlace};
use ganger_types::{Command, JobKey, JobState, Namespace, Queue, Reply};
use tokio::time::Instant;

use super::Handle;
use crate::CallError;

/// Number of ready jobs that the engine names at a time.
const NEXT_AHEAD: usize = 256;

/// A page of ready jobs in the order in which they are leased.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NextPage {
    /// The jobs of the page, the next to be leased first.
    pub jobs: Vec<StoredJob>,
    /// Place after which the next page begins; `None`: this is the last one.
    pub next: Option<ReadyPlace>,
    /// How far the ready jobs were looked at.
    pub looked: Looked,
}

impl Handle {
    /// Lists the jobs that have ended, the latest end first, after the end with the number `after`. Jobs of external
    /// systems are not among them.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn list_by_end(
        &self,
        query: JobQuery,
        after: Option<u64>,
    ) -> Result<EndedPage, CallError> {
        let reads = &self.shared.reads;
        reads
            .read(move |reader| reader.list_by_end(&query, after))
            .await
    }

    /// Lists the ready jobs of a queue that match a query, in the order in which they are leased. Jobs of external
    /// systems are not among them.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn list_next(
        &self,
        query: &JobQuery,
        queue: &Queue,
        after: Option<ReadyPlace>,
    ) -> Result<NextPage, CallError> {
        let began = Instant::now();
        let limit = page_limit(query);
        let (mut page, mut after) = (NextPage::default(), after);
        loop {
            let ask = Query::NextJobs(query.namespace.clone(), queue.clone(), after, NEXT_AHEAD);
            let Reply::NextJobs(places) = self.ask(ask).await? else {
                return Ok(page);
            };
            let is_last = places.len() < NEXT_AHEAD;
            let jobs = self
                .jobs_by_keys(places.iter().map(|place| place.2))
                .await?;
            for (place, job) in places.into_iter().zip(jobs) {
                page.looked.records += 1;
                // A job that was leased since the engine named it is not ready any more.
                let job = job.filter(|job| {
                    job.lease.is_none()
                        && job.record.state == JobState::Ready
                        && matches(query, job)
                });
                let Some(job) = job else {
                    after = Some(place);
                    continue;
                };
                if page.jobs.len() == limit {
                    page.next = after;
                    return Ok(page);
                }
                page.looked.back_to = Some(job.record.created_at);
                page.jobs.push(job);
                after = Some(place);
            }
            if is_last {
                return Ok(page);
            }
            let budget = &query.budget;
            let is_spent = budget
                .records
                .is_some_and(|most| page.looked.records >= most)
                || budget.time.is_some_and(|most| began.elapsed() >= most);
            if is_spent {
                page.looked.is_cut = true;
                page.next = after;
                return Ok(page);
            }
        }
    }

    /// Reads jobs by their numbers, in this order; `None` for one that is gone.
    async fn jobs_by_keys(
        &self,
        keys: impl Iterator<Item = JobKey>,
    ) -> Result<Vec<Option<StoredJob>>, CallError> {
        let keys: Vec<JobKey> = keys.collect();
        let read = move |reader: &mut dyn Reader| -> Result<Vec<_>, StoreError> {
            keys.into_iter().map(|key| reader.job(key)).collect()
        };
        self.shared.reads.read(read).await
    }

    /// Counts jobs by queue and states from the counters in memory.
    pub(super) async fn known_count(&self, query: JobQuery) -> Result<Count, CallError> {
        let ask = Query::Counts(query.namespace, query.queue);
        let Reply::Counts(counts) = self.ask(ask).await? else {
            return Ok(Count::default());
        };
        Ok(Count {
            jobs: query.states.iter().map(|state| counts.of(state)).sum(),
            looked: Looked::default(),
        })
    }

    /// Returns values of labels or graphs, with their numbers of jobs.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn values(
        &self,
        namespace: &Namespace,
        of: IndexedValue,
        query: ValueQuery,
    ) -> Result<ValuePage, CallError> {
        let namespace = namespace.clone();
        let reads = &self.shared.reads;
        reads
            .read(move |reader| reader.values(&namespace, &of, &query))
            .await
    }

    /// Returns the length of the log of an attempt in bytes; 0 if it has none.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn log_bytes(&self, key: JobKey, attempt: u32) -> Result<u64, CallError> {
        let reads = &self.shared.reads;
        reads
            .read(move |reader| reader.log_bytes(key, attempt))
            .await
    }

    async fn ask(&self, query: Query) -> Result<Reply, CallError> {
        self.call(Command::Query(Box::new(query))).await
    }
}
