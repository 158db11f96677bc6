//! Queues: list, show, configure, pause, resume, forget.

use axum::response::{IntoResponse, Response};
use ganger_document::names::{Named, text};
use ganger_document::settings::QueueSettingsDocument;
use ganger_document::time::calendar;
use ganger_document::view::queue::{
    self, Asker, QueueDetail, QueuePace, QueueRow, QueueView, QueueWhy, QueuesDoc,
};
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
    let rows = queues.into_iter().map(|view| QueueRow {
        pace: pace(&context, &view),
        queue: QueueView::from(view),
    });
    Ok(json::ok(&QueuesDoc {
        next,
        queues: rows.collect(),
    }))
}

/// How fast a queue fills and empties.
fn pace(context: &RequestContext, view: &reply::QueueView) -> QueuePace {
    let (shard, now) = (context.shard(), context.shard().wall_time());
    let rate = shard.series(|table| table.rate(&context.namespace, &view.queue, now));
    let Some(rate) = rate else {
        return QueuePace::default();
    };
    // Rates are far below the numbers that a fraction cannot hold exactly.
    let per_minute = |tenths: u64| f64::from(u32::try_from(tenths).unwrap_or(u32::MAX)) / 10.0;
    QueuePace {
        arrivals_per_minute: Some(per_minute(rate.arrivals_in_tenths())),
        completions_per_minute: Some(per_minute(rate.completions_in_tenths())),
        seconds_to_empty: rate
            .time_to_empty(view.counts.ready)
            .map(|time| time.as_secs_f64()),
    }
}

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    let view = read(&context).await?;
    let effective = if context.arguments.flag("effective")? {
        let namespace = namespace_settings(&context).await?;
        Some(queue::effective(&view.settings, &namespace))
    } else {
        None
    };
    let version = format!("{:016x}", view.settings.version());
    let tag = HeaderValue::try_from(format!("\"{version}\"")).expect("it is plain text");
    let document = QueueDetail {
        pace: pace(&context, &view),
        askers: askers(&context, &view.queue),
        queue: view.into(),
        version,
        effective,
    };
    Ok(([(header::ETAG, tag)], json::ok(&document)).into_response())
}

/// The workers that asked a queue for jobs within the last minute.
fn askers(context: &RequestContext, queue: &Queue) -> Vec<Asker> {
    let shard = context.shard();
    let askers = shard.askers(&context.namespace, queue).into_iter();
    let askers = askers.map(|(worker, slots, at)| Asker {
        worker: text(worker.as_bytes()),
        slots,
        asked_at: calendar(at),
    });
    askers.collect()
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
