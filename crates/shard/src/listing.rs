//! Guests, which the engine keeps and no store: in listings behind the jobs of the store, alone, and waited for.

use std::time::Duration;

use ganger_store::StoredJob;
use ganger_store::select::{matches, page_limit};
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::{JobQuery, Query};
use ganger_types::reply::GuestView;
use ganger_types::{Command, Guest, JobId, JobKey, Namespace, Place, Reply};

use tokio::time::{Instant, sleep_until};

use crate::{CallError, Handle};

/// How often an item of raw keys is looked at while somebody waits for its end.
const ITEM_LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long anybody waits for that.
const ITEM_WAIT_MAX: Duration = Duration::from_secs(300);

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<StoredJob>,
    /// Where the next page goes on ([`JobQuery::go_on`]); `None`: this is the last.
    pub next: Option<Place>,
}

impl Page {
    /// Where it ends.
    fn end(&self, last_guest: Option<Guest>) -> Option<Place> {
        let of_job = || self.jobs.last().map(|job| Place::Job(job.record.key));
        last_guest.map(Place::Guest).or_else(of_job)
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
        if query.after_guest.is_none() {
            let wanted = query.clone();
            let reads = &self.shared.reads;
            let stored = reads.read(move |reader| reader.list(&wanted)).await?;
            page.jobs = stored.jobs;
            page.next = stored.next.map(Place::Job);
        }
        if page.next.is_none() && self.may_have_guests() {
            self.fill_with_guests(query, &mut page).await?;
        }
        Ok(page)
    }

    /// How many jobs a query matches, guests among them, wherever its page would begin and end. What it costs, and
    /// how exact it is while jobs move, see [`ganger_store::Reader::count`]; guests are looked at one by one.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn count(&self, query: JobQuery) -> Result<u64, CallError> {
        let wanted = query.clone();
        let reads = &self.shared.reads;
        let mut count = reads.read(move |reader| reader.count(&wanted)).await?;
        if !self.may_have_guests() {
            return Ok(count);
        }
        let mut query = JobQuery {
            after_guest: None,
            limit: PAGE_JOBS_MAX,
            ..query
        };
        loop {
            let (found, rest) = self.look_for_guests(&query).await?;
            count += u64::try_from(found.len()).unwrap_or(u64::MAX);
            let Some(rest) = rest else {
                return Ok(count);
            };
            query.after_guest = Some(rest);
        }
    }

    /// Whether it is worth asking the engine for guests.
    pub(crate) fn may_have_guests(&self) -> bool {
        self.shared.numbers.gauges.guest_namespaces.get() > 0
    }

    /// The engine looks at a bounded number at a time, so it is asked until the page is full or nothing is left.
    async fn fill_with_guests(
        &self,
        mut query: JobQuery,
        page: &mut Page,
    ) -> Result<(), CallError> {
        let limit = page_limit(&query);
        let mut last = None;
        loop {
            // One more than there is room for tells whether there is a next page.
            query.limit = limit + 1 - page.jobs.len();
            let (found, rest) = self.look_for_guests(&query).await?;
            for (guest, job) in found {
                if page.jobs.len() == limit {
                    page.next = page.end(last);
                    return Ok(());
                }
                last = Some(guest);
                page.jobs.push(job);
            }
            let Some(rest) = rest else {
                return Ok(());
            };
            query.after_guest = Some(rest);
        }
    }

    /// The next guests that a query matches, perhaps none, and where to go on if there may be more.
    async fn look_for_guests(
        &self,
        query: &JobQuery,
    ) -> Result<(Vec<(Guest, StoredJob)>, Option<Guest>), CallError> {
        let (found, rest) = self.ask_for_guests(query.clone()).await?;
        let mut found: Vec<(Guest, StoredJob)> = found
            .into_iter()
            .map(|(guest, view)| (guest, StoredJob::new(view.record, view.lease)))
            .collect();
        found.retain(|(_, job)| matches(query, job));
        let found = self.unless_stored(&query.namespace, found).await?;
        Ok((found, rest))
    }

    async fn ask_for_guests(
        &self,
        query: JobQuery,
    ) -> Result<(Vec<(Guest, GuestView)>, Option<Guest>), CallError> {
        let query = Query::Guests(Box::new(query));
        match self.call(Command::Query(Box::new(query))).await? {
            Reply::Guests(found, rest) => Ok((found, rest)),
            other => unreachable!("guests were asked for, not {other:?}"),
        }
    }

    /// Those whose ids no job of ours has, so that each is found under the id that it is listed with.
    async fn unless_stored(
        &self,
        namespace: &Namespace,
        guests: Vec<(Guest, StoredJob)>,
    ) -> Result<Vec<(Guest, StoredJob)>, CallError> {
        if guests.is_empty() {
            return Ok(guests);
        }
        let namespace = namespace.clone();
        let reads = &self.shared.reads;
        reads
            .read(move |reader| {
                let mut shown = Vec::with_capacity(guests.len());
                for (guest, job) in guests {
                    if reader.find(&namespace, &job.record.id)?.is_none() {
                        shown.push((guest, job));
                    }
                }
                Ok(shown)
            })
            .await
    }

    /// The guest with this id, as the engine knows it.
    pub(crate) async fn guest(
        &self,
        namespace: &Namespace,
        id: &JobId,
    ) -> Result<Option<Box<GuestView>>, CallError> {
        if !self.may_have_guests() {
            return Ok(None);
        }
        let query = Query::Guest(namespace.clone(), id.clone());
        match self.call(Command::Query(Box::new(query))).await? {
            Reply::Guest(job) => Ok(job),
            other => unreachable!("a guest was asked for, not {other:?}"),
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
            sleep_until(until.min(Instant::now() + ITEM_LOOK_EVERY)).await;
            found = self.job(namespace, id).await?;
        }
        Ok(found)
    }

    /// The payload of a job that was found, also of a guest.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn payload_of(
        &self,
        job: &ganger_types::JobRecord,
    ) -> Result<Option<ganger_types::Bytes>, CallError> {
        if JobKey::is_of_guest(job.key) {
            let found = self.guest(&job.namespace, &job.id).await?;
            return Ok(found.map(|job| job.payload));
        }
        self.payload(job.key).await
    }

    /// The result of a job that was found, also of a guest.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn result_of(
        &self,
        job: &ganger_types::JobRecord,
    ) -> Result<Option<ganger_types::Bytes>, CallError> {
        if JobKey::is_of_guest(job.key) {
            let found = self.guest(&job.namespace, &job.id).await?;
            return Ok(found.and_then(|job| job.result));
        }
        self.result(job.key).await
    }
}
