//! Recurring jobs.

use ganger_proto::v1;

use super::jobs::call;
use crate::Client;
use crate::error::Error;
use crate::model::{NewSchedule, Schedule};

impl Client {
    fn schedule_named(&self, id: &str) -> v1::ScheduleRequest {
        v1::ScheduleRequest {
            namespace: self.namespace(),
            id: id.to_owned(),
        }
    }

    /// Makes or replaces a schedule.
    ///
    /// # Errors
    /// `cron_unreadable`, `time_zone_unknown`, or if the server cannot be reached.
    pub async fn put_schedule(&self, schedule: NewSchedule) -> Result<Schedule, Error> {
        let request = v1::PutScheduleRequest {
            namespace: self.namespace(),
            schedule: Some(schedule.into()),
        };
        call!(self, Safe, schedules_wire.put(request))?.try_into()
    }

    /// All schedules.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn schedules(&self) -> Result<Vec<Schedule>, Error> {
        let request = v1::SchedulesRequest {
            namespace: self.namespace(),
        };
        let reply = call!(self, Safe, schedules_wire.list(request))?;
        reply.schedules.into_iter().map(TryInto::try_into).collect()
    }

    /// One schedule.
    ///
    /// # Errors
    /// `schedule_not_found`, or if the server cannot be reached.
    pub async fn schedule(&self, id: &str) -> Result<Schedule, Error> {
        call!(self, Safe, schedules_wire.get(self.schedule_named(id)))?.try_into()
    }

    /// Removes a schedule; its jobs stay.
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
