//! Schedules: list, show, put, delete.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::response::Response;
use ganger_types::command::{PutSchedule, RemoveSchedule};
use ganger_types::query::Query;
use ganger_types::{Command, Reply, ScheduleId, Timestamp, time};

use crate::ask::Ask;
use crate::inward::schedule::ScheduleIn;
use crate::json::{self, Doc};
use crate::outward::schedule::{ScheduleView, SchedulesView, view};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::resource::numbers::Done;

pub(crate) async fn list(ask: Ask) -> Result<Response, Problem> {
    let query = Query::Schedules(ask.namespace.clone());
    match ask.call(Command::Query(Box::new(query))).await? {
        Reply::Schedules(records) => Ok(json::ok(&SchedulesView {
            schedules: records.into_iter().map(view).collect(),
        })),
        _ => Err(unexpected_reply()),
    }
}

pub(crate) async fn show(ask: Ask) -> Result<Response, Problem> {
    let id = ask.name()?;
    Ok(json::ok(&read(&ask, id).await?))
}

async fn read(ask: &Ask, id: ScheduleId) -> Result<ScheduleView, Problem> {
    let query = Query::Schedule(ask.namespace.clone(), id);
    match ask.call(Command::Query(Box::new(query))).await? {
        Reply::Schedule(record) => Ok(view(*record)),
        _ => Err(unexpected_reply()),
    }
}

pub(crate) async fn put(ask: Ask, Doc(given): Doc<ScheduleIn>) -> Result<Response, Problem> {
    let id: ScheduleId = ask.name()?;
    let schedule = given.convert(ask.namespace.clone(), id.clone(), wall_now())?;
    ask.call(Command::PutSchedule(Box::new(PutSchedule { schedule })))
        .await?;
    Ok(json::ok(&read(&ask, id).await?))
}

pub(crate) async fn delete(ask: Ask) -> Result<Response, Problem> {
    let command = RemoveSchedule {
        namespace: ask.namespace.clone(),
        id: ask.name()?,
    };
    ask.call(Command::RemoveSchedule(command)).await?;
    Ok(json::ok(&Done::default()))
}

/// The wall clock, for what a request means by "now".
pub(crate) fn wall_now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(time::micros(since))
}
