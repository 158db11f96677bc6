//! Workers: list, deregister, and release their jobs.

use std::time::Duration;

use axum::response::Response;
use ganger_document::names::{Named, text};
use ganger_document::time::Moment;
use ganger_document::view::worker::{Worker, WorkerRow, WorkersDoc};
use ganger_types::command::DeregisterWorker;
use ganger_types::limits::LEASE_FOR_DEFAULT;
use ganger_types::query::Query;
use ganger_types::reply::WorkerView;
use ganger_types::{Command, Reply, Timestamp};

use crate::filter;
use crate::json;
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::numbers::Done;

/// Time without a request after which a worker is silent: three leases.
const SILENT_AFTER: Duration = LEASE_FOR_DEFAULT.saturating_mul(3);

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let limit = filter::limit(&context.arguments)?;
    let after = context.arguments.name("after")?;
    // One more worker shows whether there is another page.
    let query = Query::Workers(context.namespace.clone(), after, limit + 1);
    let Reply::Workers(mut workers) = context.call(Command::Query(Box::new(query))).await? else {
        return Err(unexpected_reply());
    };
    let has_more = workers.len() > limit;
    workers.truncate(limit);
    let last = workers.last().filter(|_| has_more);
    Ok(json::ok(&WorkersDoc {
        next: last.map(|view| Named(view.worker.clone())),
        workers: workers
            .into_iter()
            .map(|view| row(&context, view))
            .collect(),
    }))
}

/// A worker with what is known of it since the start.
fn row(context: &RequestContext, view: WorkerView) -> WorkerRow {
    let shard = context.shard();
    let facts = shard.worker_facts(&context.namespace, &view.worker);
    let has_asked = facts.is_some();
    let facts = facts.unwrap_or_default();
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let queues = facts.queues.iter();
    WorkerRow {
        state: state(&view, shard.wall_time()),
        address: some(facts.address),
        version: some(facts.version),
        queues: queues.map(|queue| text(queue.as_bytes())).collect(),
        slots: has_asked.then_some(facts.slots),
        since: has_asked.then_some(Moment(facts.since)),
        completed: facts.completed,
        failed: facts.failed,
        lost: facts.lost,
        worker: Worker::from(view),
    }
}

fn state(view: &WorkerView, now: Timestamp) -> &'static str {
    if now.since(view.seen_at) > SILENT_AFTER {
        "silent"
    } else if view.holds.is_empty() {
        "idle"
    } else {
        "busy"
    }
}

/// Deregisters a worker that reports for itself.
pub(crate) async fn deregister(context: RequestContext) -> Result<Response, Problem> {
    end(&context).await?;
    Ok(json::ok(&Done::default()))
}

/// Deregisters a worker that an operator takes for dead, and tells how many leases ended.
pub(crate) async fn release(context: RequestContext) -> Result<Response, Problem> {
    let changed = end(&context).await?;
    Ok(json::ok(&Done { changed }))
}

/// Ends the leases of the worker in the path; returns their number, 0 for a worker that is not known.
async fn end(context: &RequestContext) -> Result<u64, Problem> {
    let command = DeregisterWorker {
        namespace: context.namespace.clone(),
        worker: context.name()?,
    };
    match context.call(Command::DeregisterWorker(command)).await? {
        Reply::Changed { count, .. } => Ok(count),
        _ => Err(unexpected_reply()),
    }
}
