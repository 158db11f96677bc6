//! Recurring jobs.

use futures::stream::{self, StreamExt as _};
use ganger_proto::v1;
use ganger_proto::v1::schedules_server::Schedules;
use ganger_types::command::{PauseSchedule, PutSchedule, RemoveSchedule, RunSchedule};
use ganger_types::query::Query;
use ganger_types::{Command, Namespace, Reply, ScheduleId, limits};
use tonic::{Request, Response, Status};

use super::reply_as;
use crate::ServiceContext;
use crate::decode::{self, At};
use crate::problem::Problem;

/// Number of last jobs that are read at a time.
const READ_AT_ONCE: usize = 8;

fn named(request: &v1::ScheduleRequest) -> Result<(Namespace, ScheduleId), Problem> {
    let namespace = decode::namespace(&request.namespace)?;
    Ok((
        namespace,
        decode::name(At::top("id"), &request.id, ScheduleId::new)?,
    ))
}

/// The number of times that a request wants.
fn times_wanted(count: u32) -> Result<usize, Problem> {
    let most = u32::try_from(limits::SCHEDULE_TIMES_MAX).expect("it is small");
    let count = decode::bounded(At::top("count"), count, 5, most)?;
    Ok(usize::try_from(count).unwrap_or(limits::SCHEDULE_TIMES_MAX))
}

impl ServiceContext {
    async fn set_paused(
        &self,
        request: &v1::ScheduleRequest,
        is_paused: bool,
    ) -> Result<Response<v1::Schedule>, Status> {
        let (namespace, id) = named(request)?;
        let command = Command::PauseSchedule(PauseSchedule {
            namespace,
            id,
            is_paused,
        });
        let record = reply_as!(self.call(command).await?, Reply::Schedule(record) => record)?;
        let observed = self.handle.observe_schedule(*record).await;
        Ok(Response::new((&observed).into()))
    }

    async fn show_schedule(
        &self,
        namespace: Namespace,
        id: ScheduleId,
    ) -> Result<Response<v1::Schedule>, Status> {
        let reply = self.ask(Query::Schedule(namespace, id)).await?;
        let record = reply_as!(reply, Reply::Schedule(record) => record)?;
        let observed = self.handle.observe_schedule(*record).await;
        Ok(Response::new((&observed).into()))
    }
}

#[tonic::async_trait]
impl Schedules for ServiceContext {
    async fn put(
        &self,
        request: Request<v1::PutScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        let request = request.into_inner();
        let namespace = decode::namespace(&request.namespace)?;
        let schedule = decode::schedule(namespace.clone(), request.schedule)?;
        let id = schedule.id.clone();
        let checked = self.handle.check_schedule(&schedule.spec).await;
        checked.map_err(Problem::from)?;
        let reply = self
            .call(Command::PutSchedule(Box::new(PutSchedule { schedule })))
            .await?;
        match reply {
            Reply::Schedule(record) => Ok(Response::new((&*record).into())),
            _ => self.show_schedule(namespace, id).await,
        }
    }

    async fn list(
        &self,
        request: Request<v1::SchedulesRequest>,
    ) -> Result<Response<v1::SchedulesReply>, Status> {
        let namespace = decode::namespace(&request.get_ref().namespace)?;
        let reply = self.ask(Query::Schedules(namespace)).await?;
        let records = reply_as!(reply, Reply::Schedules(records) => records)?;
        let schedules = stream::iter(records)
            .map(async |record| v1::Schedule::from(&self.handle.observe_schedule(record).await));
        let schedules = schedules.buffered(READ_AT_ONCE).collect().await;
        Ok(Response::new(v1::SchedulesReply {
            schedules,
            unreachable: Vec::new(),
        }))
    }

    async fn get(
        &self,
        request: Request<v1::ScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        let (namespace, id) = named(request.get_ref())?;
        self.show_schedule(namespace, id).await
    }

    async fn run(
        &self,
        request: Request<v1::ScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        let (namespace, id) = named(request.get_ref())?;
        let command = Command::RunSchedule(RunSchedule { namespace, id });
        let reply = self.call(command).await?;
        let record = reply_as!(reply, Reply::Schedule(record) => record)?;
        Ok(Response::new((&*record).into()))
    }

    async fn pause(
        &self,
        request: Request<v1::ScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        self.set_paused(request.get_ref(), true).await
    }

    async fn resume(
        &self,
        request: Request<v1::ScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        self.set_paused(request.get_ref(), false).await
    }

    async fn preview(
        &self,
        request: Request<v1::PreviewScheduleRequest>,
    ) -> Result<Response<v1::NextTimes>, Status> {
        let request = request.into_inner();
        decode::namespace(&request.namespace)?;
        let count = times_wanted(request.count)?;
        let spec = decode::preview(request.schedule)?;
        let times = self.handle.preview_schedule(&spec, count).await;
        let times = times.map_err(Problem::from)?.into_iter();
        Ok(Response::new(v1::NextTimes {
            at_us: times.map(|at| at.0).collect(),
        }))
    }

    async fn next(
        &self,
        request: Request<v1::NextTimesRequest>,
    ) -> Result<Response<v1::NextTimes>, Status> {
        let request = request.into_inner();
        let count = times_wanted(request.count)?;
        let (namespace, id) = named(&v1::ScheduleRequest {
            namespace: request.namespace,
            id: request.id,
        })?;
        let reply = self.ask(Query::ScheduleTimes(namespace, id, count)).await?;
        let times = reply_as!(reply, Reply::Times(times) => times)?;
        let at_us = times.into_iter().map(|at| at.0).collect();
        Ok(Response::new(v1::NextTimes { at_us }))
    }

    async fn remove(
        &self,
        request: Request<v1::ScheduleRequest>,
    ) -> Result<Response<v1::Done>, Status> {
        let (namespace, id) = named(request.get_ref())?;
        let reply = self
            .call(Command::RemoveSchedule(RemoveSchedule { namespace, id }))
            .await?;
        reply_as!(reply, Reply::Done => Response::new(v1::Done {})).map_err(Into::into)
    }
}
