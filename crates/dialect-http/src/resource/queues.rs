//! Queues: list, show, configure, pause, resume, forget.

use axum::response::Response;
use ganger_document::names::Named;
use ganger_document::settings::QueueSettingsDocument;
use ganger_document::view::queue::{QueueView, QueuesDoc};
use ganger_types::command::{ConfigureQueue, ForgetQueue, QueueChange};
use ganger_types::query::Query;
use ganger_types::{Command, Queue, Reply};

use crate::filter;
use crate::json::{self, JsonBody};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::numbers::Done;

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let limit = filter::limit(&context.arguments)?;
    let after = context.arguments.name("after")?;
    // One more queue shows whether there is another page.
    let query = Query::Queues(context.namespace.clone(), after, limit + 1);
    let Reply::Queues(mut queues) = context.call(Command::Query(Box::new(query))).await? else {
        return Err(unexpected_reply());
    };
    let more = queues.len() > limit;
    queues.truncate(limit);
    let last = queues.last().filter(|_| more);
    Ok(json::ok(&QueuesDoc {
        next: last.map(|view| Named(view.queue.clone())),
        queues: queues.into_iter().map(QueueView::from).collect(),
    }))
}

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    Ok(json::ok(&read(&context).await?))
}

async fn read(context: &RequestContext) -> Result<QueueView, Problem> {
    let query = Query::Queue(context.namespace.clone(), context.name()?);
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Queue(view) => Ok((*view).into()),
        _ => Err(unexpected_reply()),
    }
}

pub(crate) async fn put(
    context: RequestContext,
    JsonBody(given): JsonBody<QueueSettingsDocument>,
) -> Result<Response, Problem> {
    change(context, QueueChange::All(given.into())).await
}

pub(crate) async fn pause(context: RequestContext) -> Result<Response, Problem> {
    change(context, QueueChange::Paused(true)).await
}

pub(crate) async fn resume(context: RequestContext) -> Result<Response, Problem> {
    change(context, QueueChange::Paused(false)).await
}

async fn change(context: RequestContext, change: QueueChange) -> Result<Response, Problem> {
    let queue: Queue = context.name()?;
    let command = ConfigureQueue {
        namespace: context.namespace.clone(),
        queue,
        change,
    };
    context
        .call(Command::ConfigureQueue(Box::new(command)))
        .await?;
    Ok(json::ok(&read(&context).await?))
}

pub(crate) async fn forget(context: RequestContext) -> Result<Response, Problem> {
    let command = ForgetQueue {
        namespace: context.namespace.clone(),
        queue: context.name()?,
    };
    context.call(Command::ForgetQueue(command)).await?;
    Ok(json::ok(&Done::default()))
}
