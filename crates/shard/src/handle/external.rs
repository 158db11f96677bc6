//! External jobs, which the engine keeps and not the store: listed after the store's jobs, read alone, and waited
//! for.

mod pops;

use std::time::Duration;

use ganger_store::select::{matches, page_limit};
use ganger_store::{Count, Looked, StoredJob};
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::{JobQuery, Query};
use ganger_types::reply::ExternalJobView;
use ganger_types::{Command, ExternalJob, JobId, JobKey, Namespace, PageCursor, Reply};

use tokio::time::{Instant, sleep_until};

use super::Handle;
use crate::CallError;

/// Interval between checks of an item of raw keys while a caller waits for its end.
const ITEM_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Longest wait for the end of an item.
const ITEM_WAIT_MAX: Duration = Duration::from_secs(300);

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The jobs of the page, in order.
    pub jobs: Vec<StoredJob>,
    /// Cursor of the next page ([`JobQuery::go_on`]); `None` for the last page.
    pub next: Option<PageCursor>,
    /// How far the records of the store were looked at.
    pub looked: Looked,
}

impl Page {
    /// Returns the cursor of the last entry; `None` for an empty page.
    fn end(&self, last_external_job: Option<ExternalJob>) -> Option<PageCursor> {
        let of_job = || self.jobs.last().map(|job| PageCursor::Job(job.record.key));
        last_external_job
            .map(PageCursor::ExternalJob)
            .or_else(of_job)
    }
}

/// Whether the time that the query allows has passed.
fn is_over(query: &JobQuery, began: Instant) -> bool {
    query
        .budget
        .time
        .is_some_and(|most| began.elapsed() >= most)
}

impl Handle {
    /// Returns a page of jobs: ordinary jobs in order of their numbers, then qless jobs by jid, then items of raw
    /// keys by queue and id. The order of the last two is the same if the newest are asked for first.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn list(&self, query: JobQuery) -> Result<Page, CallError> {
        let mut page = Page::default();
        if query.after_external_job.is_none() {
            let wanted = query.clone();
            let reads = &self.shared.reads;
            let stored = reads.read(move |reader| reader.list(&wanted)).await?;
            page.jobs = stored.jobs;
            page.next = stored.next.map(PageCursor::Job);
            page.looked = stored.looked;
        }
        if page.next.is_none() && self.may_have_external_jobs() {
            self.fill_with_external_jobs(query, &mut page).await?;
        }
        Ok(page)
    }

    /// Counts the jobs that a query matches, external jobs included, regardless of pages. For cost and exactness see
    /// [`ganger_store::Reader::count`]; external jobs are visited one by one.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn count(&self, query: JobQuery) -> Result<u64, CallError> {
        Ok(self.count_within(query).await?.jobs)
    }

    /// Counts as [`Handle::count`], within the budget of the query. If all conditions are a queue and states, the
    /// counters in memory answer.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn count_within(&self, query: JobQuery) -> Result<Count, CallError> {
        if query == query.without_conditions() {
            return self.known_count(query).await;
        }
        let wanted = query.clone();
        let began = Instant::now();
        let reads = &self.shared.reads;
        let mut count = reads.read(move |reader| reader.count(&wanted)).await?;
        if !self.may_have_external_jobs() || count.looked.is_cut {
            return Ok(count);
        }
        let mut query = JobQuery {
            after_external_job: None,
            limit: PAGE_JOBS_MAX,
            ..query
        };
        loop {
            let (found, rest) = self.look_for_external_jobs(&query).await?;
            count.jobs += u64::try_from(found.len()).unwrap_or(u64::MAX);
            let Some(rest) = rest else {
                return Ok(count);
            };
            if is_over(&query, began) {
                count.looked.is_cut = true;
                return Ok(count);
            }
            query.after_external_job = Some(rest);
        }
    }

    /// Whether the engine may have external jobs.
    pub(crate) fn may_have_external_jobs(&self) -> bool {
        self.shared.metrics.external.external_job_namespaces.get() > 0
    }

    /// Adds external jobs to a page. The engine visits a bounded number per call, so it is called until the page is
    /// full or no jobs are left.
    async fn fill_with_external_jobs(
        &self,
        mut query: JobQuery,
        page: &mut Page,
    ) -> Result<(), CallError> {
        let limit = page_limit(&query);
        let began = Instant::now();
        let mut last = None;
        loop {
            // One job more than there is room for shows whether there is a next page.
            query.limit = limit + 1 - page.jobs.len();
            let (found, rest) = self.look_for_external_jobs(&query).await?;
            for (external_job, job) in found {
                if page.jobs.len() == limit {
                    page.next = page.end(last);
                    return Ok(());
                }
                last = Some(external_job);
                page.jobs.push(job);
            }
            let Some(rest) = rest else {
                return Ok(());
            };
            if is_over(&query, began) {
                page.looked.is_cut = true;
                page.next = Some(PageCursor::ExternalJob(rest));
                return Ok(());
            }
            query.after_external_job = Some(rest);
        }
    }

    /// Returns the next external jobs that match a query, perhaps none, and the last one visited if there may be
    /// more.
    async fn look_for_external_jobs(
        &self,
        query: &JobQuery,
    ) -> Result<(Vec<(ExternalJob, StoredJob)>, Option<ExternalJob>), CallError> {
        let (found, rest) = self.ask_for_external_jobs(query.clone()).await?;
        let mut found: Vec<(ExternalJob, StoredJob)> = found
            .into_iter()
            .map(|(external_job, view)| (external_job, StoredJob::new(view.record, view.lease)))
            .collect();
        found.retain(|(_, job)| matches(query, job));
        let found = self.unless_stored(&query.namespace, found).await?;
        Ok((found, rest))
    }

    async fn ask_for_external_jobs(
        &self,
        query: JobQuery,
    ) -> Result<(Vec<(ExternalJob, ExternalJobView)>, Option<ExternalJob>), CallError> {
        let query = Query::ExternalJobs(Box::new(query));
        match self.call(Command::Query(Box::new(query))).await? {
            Reply::ExternalJobs(found, rest) => Ok((found, rest)),
            _ => unreachable!("external jobs were asked for"),
        }
    }

    /// Drops external jobs whose id an ordinary job has too, since a lookup by that id would find the ordinary job.
    async fn unless_stored(
        &self,
        namespace: &Namespace,
        external_jobs: Vec<(ExternalJob, StoredJob)>,
    ) -> Result<Vec<(ExternalJob, StoredJob)>, CallError> {
        if external_jobs.is_empty() {
            return Ok(external_jobs);
        }
        let namespace = namespace.clone();
        let reads = &self.shared.reads;
        reads
            .read(move |reader| {
                let mut shown = Vec::with_capacity(external_jobs.len());
                for (external_job, job) in external_jobs {
                    if reader.find(&namespace, &job.record.id)?.is_none() {
                        shown.push((external_job, job));
                    }
                }
                Ok(shown)
            })
            .await
    }

    /// Returns the external job with this id, as the engine knows it.
    pub(crate) async fn external_job(
        &self,
        namespace: &Namespace,
        id: &JobId,
    ) -> Result<Option<Box<ExternalJobView>>, CallError> {
        if !self.may_have_external_jobs() {
            return Ok(None);
        }
        let query = Query::ExternalJob(namespace.clone(), id.clone());
        match self.call(Command::Query(Box::new(query))).await? {
            Reply::ExternalJob(job) => Ok(job),
            _ => unreachable!("an external job was asked for"),
        }
    }

    /// Waits until a job has ended, and returns it as it is then or after `wait_for`; `None` if there is no such job
    /// or it was removed. Items of raw keys are checked twice a second, since their ends are not announced.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn wait(
        &self,
        namespace: &Namespace,
        id: &JobId,
        wait_for: Duration,
    ) -> Result<Option<StoredJob>, CallError> {
        let until = Instant::now() + wait_for.min(ITEM_WAIT_MAX);
        let mut found = self.await_end(namespace, id, wait_for).await?;
        let is_live_item =
            |job: &StoredJob| !job.record.key.announces_end() && !job.record.state.is_terminal();
        if !found.as_ref().is_some_and(is_live_item) {
            return Ok(found);
        }
        let _place = self.shared.admission.enter_waiting()?;
        while found.as_ref().is_some_and(is_live_item) && Instant::now() < until {
            sleep_until(until.min(Instant::now() + ITEM_POLL_INTERVAL)).await;
            found = self.job(namespace, id).await?;
        }
        Ok(found)
    }

    /// Returns the payload of a job that was found, also of an external job.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn payload_of(
        &self,
        job: &ganger_types::JobRecord,
    ) -> Result<Option<ganger_types::Bytes>, CallError> {
        if JobKey::is_of_external_job(job.key) {
            let found = self.external_job(&job.namespace, &job.id).await?;
            return Ok(found.map(|job| job.payload));
        }
        self.payload(job.key).await
    }

    /// Returns the result of a job that was found, also of an external job.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn result_of(
        &self,
        job: &ganger_types::JobRecord,
    ) -> Result<Option<ganger_types::Bytes>, CallError> {
        if JobKey::is_of_external_job(job.key) {
            let found = self.external_job(&job.namespace, &job.id).await?;
            return Ok(found.and_then(|job| job.result));
        }
        self.result(job.key).await
    }
}
