//! Workers: list, deregister, and release their jobs.

use axum::response::Response;
use ganger_document::view::worker::{Worker, WorkersDoc};
use ganger_types::command::DeregisterWorker;
use ganger_types::query::Query;
use ganger_types::{Command, Reply};

use crate::json;
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::numbers::Done;

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let query = Query::Workers(context.namespace.clone());
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Workers(workers) => Ok(json::ok(&WorkersDoc {
            workers: workers.into_iter().map(Worker::from).collect(),
        })),
        _ => Err(unexpected_reply()),
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
