//! Workers: list and deregister.

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

pub(crate) async fn deregister(context: RequestContext) -> Result<Response, Problem> {
    let command = DeregisterWorker {
        namespace: context.namespace.clone(),
        worker: context.name()?,
    };
    context.call(Command::DeregisterWorker(command)).await?;
    Ok(json::ok(&Done::default()))
}
