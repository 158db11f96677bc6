//! Schedules: list, show, put, delete.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::response::Response;
use futures::{StreamExt as _, stream};
use ganger_document::names::text;
use ganger_document::request::schedule::ScheduleIn;
use ganger_document::view::schedule::{Schedule, ScheduleTimes, Schedules};
use ganger_types::command::{PauseSchedule, PutSchedule, RemoveSchedule, RunSchedule};
use ganger_types::limits::SCHEDULE_TIMES_MAX;
use ganger_types::query::Query;
use ganger_types::{Command, Reply, ScheduleId, Timestamp, time};

use crate::filter;
use crate::json::{self, JsonBody};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::numbers::Done;

/// Number of last jobs that are read at a time.
const READ_AT_ONCE: usize = 8;

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let limit = filter::limit(&context.arguments)?;
    let after: Option<ScheduleId> = context.arguments.name("after")?;
    let query = Query::Schedules(context.namespace.clone());
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Schedules(mut records) => {
            records.retain(|record| after.as_ref().is_none_or(|after| record.id > *after));
            let has_more = records.len() > limit;
            records.truncate(limit);
            let last = records.last().filter(|_| has_more);
            let next = last.map(|record| text(record.id.as_bytes()));
            let shard = context.shard();
            let schedules = stream::iter(records)
                .map(async |record| Schedule::from(shard.observe_schedule(record).await));
            Ok(json::ok(&Schedules {
                schedules: schedules.buffered(READ_AT_ONCE).collect().await,
                next,
            }))
        }
        _ => Err(unexpected_reply()),
    }
}

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    let id = context.name()?;
    Ok(json::ok(&read(&context, id).await?))
}

async fn read(context: &RequestContext, id: ScheduleId) -> Result<Schedule, Problem> {
    let query = Query::Schedule(context.namespace.clone(), id);
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Schedule(record) => Ok(context.shard().observe_schedule(*record).await.into()),
        _ => Err(unexpected_reply()),
    }
}

pub(crate) async fn put(
    context: RequestContext,
    JsonBody(given): JsonBody<ScheduleIn>,
) -> Result<Response, Problem> {
    let id: ScheduleId = context.name()?;
    let schedule = given.convert(context.namespace.clone(), id.clone(), wall_now())?;
    context.shard().check_schedule(&schedule.spec).await?;
    context
        .call(Command::PutSchedule(Box::new(PutSchedule { schedule })))
        .await?;
    Ok(json::ok(&read(&context, id).await?))
}

pub(crate) async fn pause(context: RequestContext) -> Result<Response, Problem> {
    set_paused(context, true).await
}

pub(crate) async fn resume(context: RequestContext) -> Result<Response, Problem> {
    set_paused(context, false).await
}

async fn set_paused(context: RequestContext, is_paused: bool) -> Result<Response, Problem> {
    let command = PauseSchedule {
        namespace: context.namespace.clone(),
        id: context.name()?,
        is_paused,
    };
    match context.call(Command::PauseSchedule(command)).await? {
        Reply::Schedule(record) => {
            let observed = context.shard().observe_schedule(*record).await;
            Ok(json::ok(&Schedule::from(observed)))
        }
        _ => Err(unexpected_reply()),
    }
}

/// Returns the next times of a schedule that is not saved.
pub(crate) async fn preview_new(
    context: RequestContext,
    JsonBody(given): JsonBody<ScheduleIn>,
) -> Result<Response, Problem> {
    let count = times_wanted(&context)?;
    let id = ScheduleId::from_static("preview");
    let record = given.convert(context.namespace.clone(), id, wall_now())?;
    let shard = context.shard();
    let times = shard.preview_schedule(&record.spec, count).await?;
    Ok(json::ok(&ScheduleTimes::new(times, &record.spec)))
}

/// The number of times that a preview shows.
fn times_wanted(context: &RequestContext) -> Result<usize, Problem> {
    let most = u64::try_from(SCHEDULE_TIMES_MAX).unwrap_or(u64::MAX);
    let count = context.arguments.number("count", 1, most)?.unwrap_or(5);
    Ok(usize::try_from(count).unwrap_or(SCHEDULE_TIMES_MAX))
}

pub(crate) async fn delete(context: RequestContext) -> Result<Response, Problem> {
    let command = RemoveSchedule {
        namespace: context.namespace.clone(),
        id: context.name()?,
    };
    context.call(Command::RemoveSchedule(command)).await?;
    Ok(json::ok(&Done::default()))
}

/// Enqueues a job of the schedule now.
pub(crate) async fn run(context: RequestContext) -> Result<Response, Problem> {
    let command = RunSchedule {
        namespace: context.namespace.clone(),
        id: context.name()?,
    };
    match context.call(Command::RunSchedule(command)).await? {
        Reply::Schedule(record) => Ok(json::ok(&Schedule::from(*record))),
        _ => Err(unexpected_reply()),
    }
}

/// Returns the next times of the schedule, as if it were not paused.
pub(crate) async fn preview(context: RequestContext) -> Result<Response, Problem> {
    let id: ScheduleId = context.name()?;
    let count = times_wanted(&context)?;
    let query = Query::Schedule(context.namespace.clone(), id.clone());
    let Reply::Schedule(record) = context.call(Command::Query(Box::new(query))).await? else {
        return Err(unexpected_reply());
    };
    let query = Query::ScheduleTimes(context.namespace.clone(), id, count);
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Times(all) => Ok(json::ok(&ScheduleTimes::new(all, &record.spec))),
        _ => Err(unexpected_reply()),
    }
}

/// The wall clock, which requests mean by "now".
pub(crate) fn wall_now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(time::micros(since))
}
