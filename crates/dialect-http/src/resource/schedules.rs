//! Schedules: list, show, put, delete.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::response::Response;
use ganger_document::request::schedule::ScheduleIn;
use ganger_document::view::schedule::{Schedule, ScheduleTimes, Schedules};
use ganger_types::command::{PutSchedule, RemoveSchedule, RunSchedule};
use ganger_types::limits::SCHEDULE_TIMES_MAX;
use ganger_types::query::Query;
use ganger_types::{Command, Reply, ScheduleId, Timestamp, time};

use crate::json::{self, JsonBody};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::numbers::Done;

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let query = Query::Schedules(context.namespace.clone());
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Schedules(records) => Ok(json::ok(&Schedules {
            schedules: records.into_iter().map(Into::into).collect(),
        })),
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
        Reply::Schedule(record) => Ok((*record).into()),
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
    let most = u64::try_from(SCHEDULE_TIMES_MAX).unwrap_or(u64::MAX);
    let count = context.arguments.number("count", 1, most)?.unwrap_or(5);
    let count = usize::try_from(count).unwrap_or(SCHEDULE_TIMES_MAX);
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
