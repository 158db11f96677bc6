//! Counts tasks.
//!
//! The engine and the store count without examining each task, but include tasks whose time to live is over and which
//! upkeep will remove within seconds. If few tasks have ended, each is examined to exclude such tasks. If many have, that
//! would cost too much for a small difference.

use axum::extract::{Request, State};
use axum::response::Response;
use ganger_ngsi::job::QUEUE;
use ganger_shard::CallError;
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::{JobQuery, Query};
use ganger_types::{Command, JobRecord, Queue, QueueCounts, Rejection, Reply};
use http::StatusCode;

use crate::api::Api;
use crate::job::{self, Status};
use crate::list::{Jobs, now};
use crate::problem::{Problem, json_line};
use crate::selection::{Selection, every_task};

/// Maximum number of finished tasks that are examined.
const EXAMINED_MAX: u64 = 10_000;

/// Answers a `GET` of the number of tasks.
pub(crate) async fn tasks(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    let selection = Selection::of(&parts)?;
    let statuses = selection
        .status
        .map_or(Status::ALL.to_vec(), |status| vec![status]);
    let mut count = 0;
    for status in statuses {
        count += if selection.is_unbounded() {
            count_all(&api, status).await?
        } else {
            count_selected(&api, &selection, status).await?
        };
    }
    Ok(json_line(StatusCode::OK, count))
}

/// Counts tasks of all tenants in a status.
async fn count_all(api: &Api, status: Status) -> Result<u64, CallError> {
    let namespace = &api.settings().namespace;
    let query = Query::Queue(namespace.clone(), Queue::from_static(QUEUE));
    let queue = match api.shard().call(Command::Query(Box::new(query))).await {
        Ok(Reply::Queue(queue)) => queue,
        // The queue does not exist before the first notification.
        Ok(_) | Err(CallError::Rejected(Rejection::QueueNotFound { .. })) => return Ok(0),
        Err(error) => return Err(error),
    };
    let each = status.states().iter().map(|state| queue.counts.of(state));
    let count = each.sum();
    // The store has to visit all finished jobs to find those of a queue.
    if !must_be_examined(status, count) || count_finished_jobs(api).await? > EXAMINED_MAX {
        return Ok(count);
    }
    examine(api, every_task(namespace, Some(status)), |_| true).await
}

/// Counts the finished jobs of all queues and namespaces that have not been removed.
async fn count_finished_jobs(api: &Api) -> Result<u64, CallError> {
    let queues = api.shard().metrics_now().await?.queues;
    let ended = |counts: &QueueCounts| counts.succeeded + counts.failed + counts.cancelled;
    Ok(queues.iter().map(|(_, _, counts, _)| ended(counts)).sum())
}

/// Counts tasks in a status among those that the headers select.
async fn count_selected(
    api: &Api,
    selection: &Selection,
    status: Status,
) -> Result<u64, CallError> {
    let selection = selection.in_status(status);
    let query = selection.query(&api.settings().namespace);
    if !selection.has_correlator() {
        let count = api.shard().count(query.clone()).await?;
        if !must_be_examined(status, count) {
            return Ok(count);
        }
    }
    // Few tasks share a correlation id.
    examine(api, query, |job| selection.has(job)).await
}

/// Whether tasks must be examined. Pending tasks never expire.
fn must_be_examined(status: Status, count: u64) -> bool {
    status != Status::Pending && (1..=EXAMINED_MAX).contains(&count)
}

async fn examine(
    api: &Api,
    query: JobQuery,
    matches: impl Fn(&JobRecord) -> bool,
) -> Result<u64, CallError> {
    let mut jobs = Jobs::until_now(api, query, PAGE_JOBS_MAX).await?;
    let mut count = 0;
    while let Some(job) = jobs.next(api).await? {
        if matches(&job) && !job::is_expired(&job, now()) {
            count += 1;
        }
    }
    Ok(count)
}
