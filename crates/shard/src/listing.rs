//! External jobs, which the engine keeps and no store: in listings behind the jobs of the store, alone, and waited for.

use std::time::Duration;

use ganger_store::StoredJob;
use ganger_store::select::{matches, page_limit};
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::{JobQuery, Query};
use ganger_types::reply::ExternalJobView;
use ganger_types::{Command, ExternalJob, JobId, JobKey, Namespace, PageCursor, Reply};

use tokio::time::{Instant, sleep_until};

use crate::{CallError, Handle};

/// How often an item of raw keys is looked at while somebody waits for its end.
const ITEM_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long anybody waits for that.
const ITEM_WAIT_MAX: Duration = Duration::from_secs(300);

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The jobs of the page, in order.
    pub jobs: Vec<StoredJob>,
    /// Where the next page goes on ([`JobQuery::go_on`]); `None`: this is the last.
    pub next: Option<PageCursor>,
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

impl Handle {
    /// A page of jobs: those of ours in order of their numbers, then those of qless by their jids, then items of raw keys
    /// by queue and id; the last two whether the newest are asked for first or not.
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
        }
        if page.next.is_none() && self.may_have_external_jobs() {
            self.fill_with_external_jobs(query, &mut page).await?;
        }
        Ok(page)
    }

    /// How many jobs a query matches, external jobs among them, wherever its page would begin and end. What it costs, and
    /// how exact it is while jobs move, see [`ganger_store::Reader::count`]; external jobs are looked at one by one.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn count(&self, query: JobQuery) -> Result<u64, CallError> {
        let wanted = query.clone();
        let reads = &self.shared.reads;
        let mut count = reads.read(move |reader| reader.count(&wanted)).await?;
        if !self.may_have_external_jobs() {
            return Ok(count);
        }
        let mut query = JobQuery {
            after_external_job: None,
            limit: PAGE_JOBS_MAX,
            ..query
        };
        loop {
            let (found, rest) = self.look_for_external_jobs(&query).await?;
            count += u64::try_from(found.len()).unwrap_or(u64::MAX);
            let Some(rest) = rest else {
                return Ok(count);
            };
            query.after_external_job = Some(rest);
        }
    }

    /// Whether it is worth asking the engine for external jobs.
    pub(crate) fn may_have_external_jobs(&self) -> bool {
        self.shared.metrics.gauges.external_job_namespaces.get() > 0
    }

    /// The engine looks at a bounded number at a time, so it is asked until the page is full or nothing is left.
    async fn fill_with_external_jobs(
        &self,
        mut query: JobQuery,
        page: &mut Page,
    ) -> Result<(), CallError> {
        let limit = page_limit(&query);
        let mut last = None;
        loop {
            // One more than there is room for tells whether there is a next page.
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
            query.after_external_job = Some(rest);
        }
    }

    /// The next external jobs that a query matches, perhaps none, and where to go on if there may be more.
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
            other => unreachable!("external_jobs were asked for, not {other:?}"),
        }
    }

    /// Those whose ids no job of ours has, so that each is found under the id that it is listed with.
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

    /// The external job with this id, as the engine knows it.
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
            other => unreachable!("a external_job was asked for, not {other:?}"),
        }
    }

    /// The job once it has ended, or as it is after `wait_for`; `None` if there is no such job, or none any more. Nobody
    /// announces the end of an item of raw keys: it is looked at twice a second.
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
            |job: &StoredJob| job.record.key == JobKey::OF_KEYS && !job.record.state.is_terminal();
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

    /// The payload of a job that was found, also of an external job.
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

    /// The result of a job that was found, also of an external job.
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
