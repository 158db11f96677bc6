//! Calls for schedules, which enqueue jobs repeatedly.

use std::time::SystemTime;

use ganger_proto::v1;

use super::jobs::call;
use crate::Client;
use ganger_proto::convert;

use crate::convert::at;
use crate::error::Error;
use crate::model::{Listed, NewSchedule, Schedule};

impl Client {
    fn schedule_named(&self, id: &str) -> v1::ScheduleRequest {
        v1::ScheduleRequest {
            namespace: self.namespace(),
            id: id.to_owned(),
        }
    }

    /// Creates or replaces a schedule.
    ///
    /// # Errors
    /// `cron_unreadable`, `time_zone_unknown`, or if the server cannot be reached.
    pub async fn put_schedule(&self, schedule: NewSchedule) -> Result<Schedule, Error> {
        let request = v1::PutScheduleRequest {
            namespace: self.namespace(),
            schedule: Some(schedule.into()),
        };
        Ok(convert::schedule(call!(
            self,
            Safe,
            schedules_wire.put(request)
        )?)?)
    }

    /// Returns all schedules of the namespace.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn schedules(&self) -> Result<Vec<Schedule>, Error> {
        Ok(self.list_schedules().await?.entries)
    }

    /// Returns all schedules of the namespace: of the shard of this client, or of all shards
    /// ([`Client::at_all_shards`]).
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn list_schedules(&self) -> Result<Listed<Schedule>, Error> {
        let request = v1::SchedulesRequest {
            namespace: self.namespace(),
        };
        let reply = call!(self, Safe, schedules_wire.list(request))?;
        let schedules = reply.schedules.into_iter();
        let schedules = schedules.map(|one| Ok(convert::schedule(one)?));
        Ok(Listed {
            entries: schedules.collect::<Result<_, Error>>()?,
            unreachable: reply.unreachable,
        })
    }

    /// Returns a schedule.
    ///
    /// # Errors
    /// `schedule_not_found`, or if the server cannot be reached.
    pub async fn schedule(&self, id: &str) -> Result<Schedule, Error> {
        let reply = call!(self, Safe, schedules_wire.get(self.schedule_named(id)))?;
        Ok(convert::schedule(reply)?)
    }

    /// Pauses a schedule: nothing fires until it is resumed. Its other fields stay as they are.
    ///
    /// # Errors
    /// `schedule_not_found`, or if the server cannot be reached.
    pub async fn pause_schedule(&self, id: &str) -> Result<Schedule, Error> {
        let request = self.schedule_named(id);
        let reply = call!(self, Safe, schedules_wire.pause(request))?;
        Ok(convert::schedule(reply)?)
    }

    /// Resumes a paused schedule.
    ///
    /// # Errors
    /// `schedule_not_found`, or if the server cannot be reached.
    pub async fn resume_schedule(&self, id: &str) -> Result<Schedule, Error> {
        let request = self.schedule_named(id);
        let reply = call!(self, Safe, schedules_wire.resume(request))?;
        Ok(convert::schedule(reply)?)
    }

    /// Returns the next `count` times of a schedule that is not saved, at most 20 (5 if 0).
    ///
    /// # Errors
    /// `cron_unreadable`, `time_zone_unknown`, or if the server cannot be reached.
    pub async fn preview_schedule(
        &self,
        schedule: NewSchedule,
        count: u32,
    ) -> Result<Vec<SystemTime>, Error> {
        let request = v1::PreviewScheduleRequest {
            namespace: self.namespace(),
            schedule: Some(schedule.into()),
            count,
        };
        let reply = call!(self, Safe, schedules_wire.preview(request))?;
        Ok(reply.at_us.into_iter().map(at).collect())
    }

    /// Enqueues a job of the schedule now; the returned schedule names it as its last job.
    ///
    /// # Errors
    /// `schedule_not_found`, if its queue is full, or if the server cannot be reached.
    pub async fn run_schedule(&self, id: &str) -> Result<Schedule, Error> {
        let request = self.schedule_named(id);
        let reply = call!(self, IfNothingChanged, schedules_wire.run(request))?;
        Ok(convert::schedule(reply)?)
    }

    /// Returns the next `count` times of a schedule, at most 20, as if it were not paused.
    ///
    /// # Errors
    /// `schedule_not_found`, or if the server cannot be reached.
    pub async fn next_times(&self, id: &str, count: u32) -> Result<Vec<SystemTime>, Error> {
        let request = v1::NextTimesRequest {
            namespace: self.namespace(),
            id: id.to_owned(),
            count,
        };
        let reply = call!(self, Safe, schedules_wire.next(request))?;
        Ok(reply.at_us.into_iter().map(at).collect())
    }

    /// Removes a schedule; its jobs are kept.
    ///
    /// # Errors
    /// `schedule_not_found`, or if the server cannot be reached.
    pub async fn remove_schedule(&self, id: &str) -> Result<(), Error> {
        call!(
            self,
            IfNothingChanged,
            schedules_wire.remove(self.schedule_named(id))
        )
        .map(|_| ())
    }
}
