//! Workers: list, deregister, and release their jobs.

use axum::response::Response;
use ganger_document::names::Named;
use ganger_document::view::worker::WorkersDoc;
use ganger_types::command::DeregisterWorker;
use ganger_types::query::Query;
use ganger_types::{Command, Reply};

use crate::filter;
use crate::json;
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::numbers::Done;

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
    let next = last.map(|view| Named(view.worker.clone()));
    let shard = context.shard();
    let workers = workers.into_iter();
    let workers = workers.map(|view| shard.observe_worker(&context.namespace, view).into());
    Ok(json::ok(&WorkersDoc {
        next,
        workers: workers.collect(),
    }))
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
