//! Queues: list, show, configure, pause, resume, forget.

use axum::response::{IntoResponse, Response};
use ganger_document::names::Named;
use ganger_document::settings::QueueSettingsDocument;
use ganger_document::view::queue::{self, QueueView, QueueWhy, QueuesDoc};
use ganger_types::command::{ConfigureQueue, ForgetQueue, QueueChange};
use ganger_types::query::Query;
use ganger_types::{Command, NamespaceSettings, Queue, Reply, reply};
use http::{HeaderValue, header};

use crate::filter;
use crate::json::{self, JsonBody};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::{RequestContext, bad_header};
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
    let next = last.map(|view| Named(view.queue.clone()));
    let shard = context.shard();
    let queues = queues.into_iter();
    let queues = queues.map(|view| shard.observe_queue(&context.namespace, view).into());
    Ok(json::ok(&QueuesDoc {
        next,
        queues: queues.collect(),
    }))
}

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    let view = read(&context).await?;
    let effective = if context.arguments.flag("effective")? {
        let namespace = namespace_settings(&context).await?;
        Some(queue::effective(&view.settings, &namespace))
    } else {
        None
    };
    let observed = context
        .shard()
        .observe_queue_closely(&context.namespace, view);
    let document = QueueView {
        effective,
        ..QueueView::from(observed)
    };
    let version = document.version.as_deref().unwrap_or_default();
    let tag = HeaderValue::try_from(format!("\"{version}\"")).expect("it is plain text");
    Ok(([(header::ETAG, tag)], json::ok(&document)).into_response())
}

async fn namespace_settings(context: &RequestContext) -> Result<NamespaceSettings, Problem> {
    let query = Command::Query(Box::new(Query::Namespaces));
    let Reply::Namespaces(all) = context.call(query).await? else {
        return Err(unexpected_reply());
    };
    let own = all.into_iter().find(|it| it.namespace == context.namespace);
    Ok(own.map(|record| record.settings).unwrap_or_default())
}

async fn read(context: &RequestContext) -> Result<reply::QueueView, Problem> {
    let query = Query::Queue(context.namespace.clone(), context.name()?);
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Queue(view) => Ok(*view),
        _ => Err(unexpected_reply()),
    }
}

/// Explains why the jobs of a queue are not running.
pub(crate) async fn why(context: RequestContext) -> Result<Response, Problem> {
    let queue: Queue = context.name()?;
    let query = Query::QueueWhy(context.namespace.clone(), queue.clone());
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::QueueWhy(waits) => Ok(json::ok(&QueueWhy::new(&queue, &waits))),
        _ => Err(unexpected_reply()),
    }
}

pub(crate) async fn put(
    context: RequestContext,
    JsonBody(given): JsonBody<QueueSettingsDocument>,
) -> Result<Response, Problem> {
    let settings = given.into();
    let change_of = match expected_version(&context)? {
        Some(version) => QueueChange::AllIf { settings, version },
        None => QueueChange::All(settings),
    };
    change(context, change_of).await
}

/// The version in `If-Match`; `None` without the header, and for `*`.
fn expected_version(context: &RequestContext) -> Result<Option<u64>, Problem> {
    let Some(value) = context.headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    if value.as_bytes() == b"*" {
        return Ok(None);
    }
    let text = value.to_str().unwrap_or_default();
    let version = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let version = u64::from_str_radix(version.unwrap_or(text), 16);
    let reason = || "must be the `version` of the queue, or its ETag";
    let version = version.map_err(|_| bad_header("if-match", reason()))?;
    Ok(Some(version))
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
    Ok(json::ok(&QueueView::from(read(&context).await?)))
}

pub(crate) async fn forget(context: RequestContext) -> Result<Response, Problem> {
    let command = ForgetQueue {
        namespace: context.namespace.clone(),
        queue: context.name()?,
    };
    context.call(Command::ForgetQueue(command)).await?;
    Ok(json::ok(&Done::default()))
}
