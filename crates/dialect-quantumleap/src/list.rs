//! Lists of tasks, streamed page by page, so that memory does not depend on their length or on payloads.
//!
//! The framing is fixed: a line `[`, a line with a trailing comma for each task, a line `null`, and `]`. The `null` shows
//! that the list is complete; an interrupted list lacks it.

use std::collections::VecDeque;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use ganger_ngsi::task::{Origin, Task};
use ganger_shard::CallError;
use ganger_types::query::JobQuery;
use ganger_types::{JobKey, JobRecord, PageCursor, Timestamp};
use http::{HeaderValue, StatusCode, header};
use tokio::sync::OwnedSemaphorePermit;

use crate::api::Api;
use crate::job;
use crate::problem::Problem;
use crate::selection::Selection;
use crate::show;

/// Number of tasks in memory at a time, with the payload of one of them.
pub(crate) const PAGE_TASKS: usize = 100;
/// Bytes collected before they are sent.
const CHUNK_BYTES: usize = 32 << 10;

/// Answers a `GET` of the tasks with their inputs.
pub(crate) async fn tasks(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    answer(api, request, true).await
}

/// Answers a `GET` of the tasks without their inputs.
pub(crate) async fn summary(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    answer(api, request, false).await
}

async fn answer(api: Api, request: Request, has_inputs: bool) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    let selection = Selection::of(&parts)?;
    let permit = api.lists().clone().try_acquire_owned().map_err(|_| {
        let limit = api.settings().lists_max;
        let detail = format!("the limit of {limit} concurrent lists is reached: try again later");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })?;
    let mut listing = Listing::start(api, selection, has_inputs, permit).await?;
    // Write the first chunk before the response starts, because an error can still become a refusal then.
    let first = listing.next_chunk().await?;
    let rest = stream::try_unfold(listing, |mut listing| async {
        let chunk = listing.next_chunk().await.inspect_err(|error| {
            tracing::warn!(%error, "a list of tasks was cut off");
        })?;
        Ok::<_, CallError>(chunk.map(|chunk| (chunk, listing)))
    });
    let chunks = stream::iter(first.map(Ok)).chain(rest);
    let mut response = Body::from_stream(chunks).into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

/// A list while it is written.
struct Listing {
    api: Api,
    selection: Selection,
    has_inputs: bool,
    jobs: Jobs,
    progress: ListProgress,
    _permit: OwnedSemaphorePermit,
}

/// Progress of writing a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListProgress {
    Nothing,
    Some,
    All,
}

impl Listing {
    async fn start(
        api: Api,
        selection: Selection,
        has_inputs: bool,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, CallError> {
        let query = selection.query(&api.settings().namespace);
        let jobs = Jobs::until_now(&api, query, PAGE_TASKS).await?;
        Ok(Self {
            api,
            selection,
            has_inputs,
            jobs,
            progress: ListProgress::Nothing,
            _permit: permit,
        })
    }

    /// Returns the next bytes; `None` after the last.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, CallError> {
        let mut chunk = BytesMut::new();
        match self.progress {
            ListProgress::Nothing => chunk.extend_from_slice(b"[\n"),
            ListProgress::Some => {}
            ListProgress::All => return Ok(None),
        }
        self.progress = ListProgress::Some;
        while chunk.len() < CHUNK_BYTES {
            let Some(job) = self.jobs.next(&self.api).await? else {
                chunk.extend_from_slice(b"null\n]");
                self.progress = ListProgress::All;
                break;
            };
            if self.selection.has(&job) && !job::is_expired(&job, now()) {
                self.push(&job, &mut chunk).await?;
            }
        }
        Ok(Some(chunk.freeze()))
    }

    /// Writes a task, unless it was removed meanwhile.
    async fn push(&self, job: &JobRecord, out: &mut BytesMut) -> Result<(), CallError> {
        let correlator = job::correlator_of(job);
        let payload = if self.has_inputs || correlator.is_err() {
            let Some(payload) = self.api.shard().payload(job.key).await? else {
                return Ok(());
            };
            payload
        } else {
            Bytes::new()
        };
        let origin = Origin {
            correlator: correlator.unwrap_or_else(|()| correlator_in(&payload)),
            ..self.selection.origin.clone()
        };
        let runtime = show::runtime(&origin, job);
        if self.has_inputs {
            out.extend_from_slice(b"{\"runtime\":");
            out.extend_from_slice(runtime.as_bytes());
            out.extend_from_slice(b",\"input\":");
            out.extend_from_slice(&payload);
            out.extend_from_slice(b"},\n");
        } else {
            out.extend_from_slice(runtime.as_bytes());
            out.extend_from_slice(b",\n");
        }
        Ok(())
    }
}

/// Returns the correlation id of a task whose labels do not have it.
fn correlator_in(payload: &[u8]) -> Option<String> {
    Task::from_json(payload).ok()?.origin.correlator
}

/// Iterates over jobs by number, page by page. Jobs created after the iterator are not included.
pub(crate) struct Jobs {
    query: JobQuery,
    page: VecDeque<JobRecord>,
    /// Newest job to include; `None` after the last page.
    until: Option<JobKey>,
}

impl Jobs {
    /// Creates an iterator over the jobs that a query finds now, in pages of `page_jobs` jobs.
    pub(crate) async fn until_now(
        api: &Api,
        query: JobQuery,
        page_jobs: usize,
    ) -> Result<Self, CallError> {
        let newest = JobQuery {
            newest_first: true,
            limit: 1,
            ..query.clone()
        };
        let newest = api.shard().list(newest).await?;
        Ok(Self {
            until: newest.jobs.first().map(|job| job.record.key),
            page: VecDeque::new(),
            query: JobQuery {
                limit: page_jobs,
                ..query
            },
        })
    }

    /// Returns the next job; `None` after the last.
    pub(crate) async fn next(&mut self, api: &Api) -> Result<Option<JobRecord>, CallError> {
        while self.page.is_empty() && !self.is_at_end() {
            self.page = self.next_page(api).await?.into();
        }
        Ok(self.page.pop_front())
    }

    /// Whether there is no further page.
    pub(crate) fn is_at_end(&self) -> bool {
        self.until.is_none()
    }

    /// Returns the next page, which may be empty although there are more.
    pub(crate) async fn next_page(&mut self, api: &Api) -> Result<Vec<JobRecord>, CallError> {
        let Some(until) = self.until else {
            return Ok(Vec::new());
        };
        let page = api.shard().list(self.query.clone()).await?;
        // External jobs, which come after the store's jobs, are not tasks.
        let next = page.next.and_then(|cursor| match cursor {
            PageCursor::Job(key) => Some(key),
            PageCursor::ExternalJob(_) => None,
        });
        self.until = Some(until).filter(|until| next.is_some_and(|next| next < *until));
        self.query.after = next;
        let records = page.jobs.into_iter().map(|job| job.record);
        Ok(records.take_while(|job| job.key <= until).collect())
    }
}

/// Returns the current time, for expiry.
pub(crate) fn now() -> Timestamp {
    let micros = jiff::Timestamp::now().as_microsecond();
    Timestamp(u64::try_from(micros).unwrap_or_default())
}
