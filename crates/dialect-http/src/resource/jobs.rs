//! Jobs: enqueue, show, list, count, and read payload, inputs and result.

use std::time::{Duration, Instant};

use axum::response::Response;
use bytes::Bytes;
use ganger_document::names::{full_name, text};
use ganger_document::raw_json;
use ganger_document::request::job::JobIn;
use ganger_document::time::calendar;
use ganger_document::view::input::Inputs;
use ganger_document::view::submission::Enqueued;
use ganger_document::view::{job, reason};
use ganger_engine::ShardedSubmission;
use ganger_shard::StoredJob;
use ganger_types::cursor::ready_place_text;
use ganger_types::query::{Budget, Query};
use ganger_types::why::Explanation;
use ganger_types::{Command, Due, JobId, JobRef, JobState, Reply};
use http::{HeaderValue, StatusCode, header};

use crate::byte_range;
use crate::filter::{self, Order};
use crate::json::{self, JsonBody};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::submission;

/// Maximum number of inputs on a page.
const INPUTS_PAGE_MAX: u64 = 1_000;

/// The document of an enqueued job.
pub(crate) fn enqueued(job: &JobRef, existed: bool) -> Enqueued {
    Enqueued {
        id: text(job.id.as_bytes()),
        r#ref: full_name(&job.shard, &job.id),
        existed,
    }
}

pub(crate) async fn enqueue(
    context: RequestContext,
    JsonBody(given): JsonBody<JobIn>,
) -> Result<Response, Problem> {
    let spread = ShardedSubmission {
        namespace: context.namespace.clone(),
        idempotency_key: context.idempotency_key()?,
        jobs: vec![given.convert_alone(&context.api)?],
    };
    let mut submitted = submission::submit(&context, spread, false, Problem::from).await?;
    let (job, existed) = submitted.jobs.pop().ok_or_else(unexpected_reply)?;
    let view = enqueued(&job, existed || submitted.repeat);
    let status = if view.existed {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok(json::answer(status, &view))
}

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let listing = filter::from_arguments(&context.arguments, context.namespace.clone())?;
    let shard = context.shard();
    let budget = listing.query.budget;
    let (jobs, next, looked) = match listing.order {
        Order::Number => {
            let page = shard.list(listing.query).await?;
            let next = page.next.map(|cursor| cursor.to_string());
            (page.jobs, next, page.looked)
        }
        Order::End(after) => {
            let page = shard.list_by_end(listing.query, after).await?;
            (page.jobs, page.next.map(|end| end.to_string()), page.looked)
        }
        Order::Next(queue, after) => {
            let page = shard.list_next(&listing.query, &queue, after).await?;
            let next = page.next.map(ready_place_text);
            (page.jobs, next, page.looked)
        }
    };
    let is_bounded = budget != Budget::default();
    let mut page = job::Page {
        next,
        complete: is_bounded.then_some(!looked.is_cut),
        looked_at: is_bounded.then_some(looked.records),
        looked_back_to: looked.back_to.filter(|_| looked.is_cut).map(calendar),
        ..job::Page::new(shard.id(), jobs, None)
    };
    if !listing.is_summary {
        return Ok(json::ok(&page));
    }
    let jobs = std::mem::take(&mut page.jobs).into_iter();
    let jobs: Vec<serde_json::Value> = jobs.map(job::Job::into_summary).collect();
    let mut document = serde_json::to_value(&page).expect("our documents are plain data");
    document["jobs"] = jobs.into();
    Ok(json::ok(&document))
}

/// Counts the jobs that a listing with the same filters would return.
pub(crate) async fn count(context: RequestContext) -> Result<Response, Problem> {
    let query = filter::conditions(&context.arguments, context.namespace.clone())?;
    let count = context.shard().count_within(query).await?;
    Ok(json::ok(&job::JobCount {
        count: count.jobs,
        exact: !count.looked.is_cut,
        unreachable: Vec::new(),
    }))
}

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    let found = waited_for(&context).await?;
    let is_delayed = found.record.state == JobState::Scheduled
        && matches!(found.record.due, Some(Due::Elapsed(_)));
    let id = found.record.id.clone();
    let mut view = job::Job::new(context.shard().id(), found);
    if is_delayed
        && let Ok(explanation) = explain(&context, id).await
        && let Some(at) = reason::not_before(&explanation)
    {
        view.run_at
            .get_or_insert(ganger_document::time::calendar(at));
    }
    Ok(json::ok(&view))
}

pub(crate) async fn why(context: RequestContext) -> Result<Response, Problem> {
    let explanation = explain(&context, context.job()?).await?;
    Ok(json::ok(&reason::Explanation::new(
        context.shard().id(),
        explanation,
    )))
}

async fn explain(context: &RequestContext, id: JobId) -> Result<Explanation, Problem> {
    let query = Query::Why(context.namespace.clone(), id);
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Why(explanation) => Ok(*explanation),
        _ => Err(unexpected_reply()),
    }
}

/// Returns the stored payload, byte for byte.
pub(crate) async fn payload(context: RequestContext) -> Result<Response, Problem> {
    let job = find(&context).await?;
    let payload = context.shard().payload_of(&job.record).await?;
    Ok(raw(&context, payload.unwrap_or_default()))
}

/// Returns the stored result, byte for byte, and can wait for it.
pub(crate) async fn result(context: RequestContext) -> Result<Response, Problem> {
    let job = waited_for(&context).await?;
    let result = context.shard().result_of(&job.record).await?;
    let result = result.map(|bytes| raw(&context, bytes));
    result.ok_or_else(|| {
        let state = job.record.state;
        let next = match state {
            JobState::Succeeded => "it ended without a result",
            _ if state.is_terminal() => "see the job for why",
            _ => "wait for it with ?wait=30s",
        };
        Problem::new(
            "result_not_found",
            format!("job {} is {state}: {next}", job.record.id),
        )
    })
}

pub(crate) async fn inputs(context: RequestContext) -> Result<Response, Problem> {
    let job = find(&context).await?;
    let from = context
        .arguments
        .number("from", 0, u64::from(u32::MAX))?
        .unwrap_or(0);
    let limit = context
        .arguments
        .number("limit", 1, INPUTS_PAGE_MAX)?
        .unwrap_or(100);
    let limit = usize::try_from(limit).unwrap_or(1);
    let from = u32::try_from(from).unwrap_or(u32::MAX);
    let rows = context.shard().inputs(job.record.key, from, limit).await?;
    let next = if rows.len() < limit {
        None
    } else {
        rows.last().map(|row| row.slot + 1)
    };
    let inputs = rows.into_iter().map(Into::into).collect();
    Ok(json::ok(&Inputs { inputs, next }))
}

/// An answer with stored bytes, or with the part that `Range` names. Its headers keep a browser from executing them.
fn raw(context: &RequestContext, bytes: Bytes) -> Response {
    let media_type = HeaderValue::from_static(raw_json::media_type(&bytes));
    let policy = HeaderValue::from_static("default-src 'none'; sandbox");
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    byte_range::answer(&context.headers, headers, bytes)
}

/// The job in the path.
pub(crate) async fn find(context: &RequestContext) -> Result<StoredJob, Problem> {
    let id = context.job()?;
    match context.shard().job(&context.namespace, &id).await? {
        Some(found) => Ok(found),
        None => Err(missing(context, id).await),
    }
}

/// The job in the path, after it has ended, `wait` is over, or the server stops. If its shard moves to another node, the
/// rest of the wait is that node's.
async fn waited_for(context: &RequestContext) -> Result<StoredJob, Problem> {
    let asked = context.arguments.span("wait")?.unwrap_or(Duration::ZERO);
    let left = context.continue_at()?.map(Duration::from_millis);
    let wait = left.map_or(asked, |left| left.min(asked));
    if wait.is_zero() {
        return find(context).await;
    }
    let until = Instant::now() + wait;
    let id = context.job()?;
    tokio::select! {
        found = context.shard().wait(&context.namespace, &id, wait) => match found? {
            Some(found) => Ok(found),
            None => Err(missing(context, id.clone()).await),
        },
        () = context.api.settings().stopping.cancelled() => {
            if context.continued().is_none() {
                return find(context).await;
            }
            let left = until.saturating_duration_since(Instant::now());
            let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let words = "the shard of the job moves to another node: try again";
            Err(Problem::new("unavailable", words).continue_at(left))
        }
    }
}

/// The problem for a job without a row. The engine knows whether the job is part of an undecided submission.
pub(crate) async fn missing(context: &RequestContext, id: JobId) -> Problem {
    match explain(context, id.clone()).await {
        Ok(_) => not_found(id),
        Err(problem) => problem,
    }
}

/// The problem for a job that does not exist, with the text of the engine.
pub(crate) fn not_found(job: JobId) -> Problem {
    ganger_types::Rejection::JobNotFound { job }.into()
}
