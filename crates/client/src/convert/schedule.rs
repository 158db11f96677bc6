//! Schedules.

use std::time::Duration;

use ganger_proto::convert::{self, At};
use ganger_proto::v1;

use super::{at, labels, ms, pairs, retry, some, us};
use crate::error::Error;
use crate::model::{NewSchedule, Schedule, ScheduleSpec};

impl From<NewSchedule> for v1::Schedule {
    fn from(rule: NewSchedule) -> Self {
        use v1::schedule::Spec;
        let spec = match rule.spec {
            ScheduleSpec::Interval { every, first_at } => Spec::Interval(v1::Interval {
                every_ms: ms(every),
                first_at_us: first_at.map(us),
            }),
            ScheduleSpec::Cron {
                expression,
                time_zone,
            } => Spec::Cron(v1::Cron {
                expression,
                time_zone,
            }),
        };
        Self {
            id: rule.id,
            spec: Some(spec),
            catch_up: Some(rule.catch_up.into()),
            overlap: i32::from(v1::Overlap::from(rule.overlap)),
            paused: rule.paused,
            queue: rule.queue,
            kind: rule.kind,
            payload: rule.payload,
            priority: rule.priority,
            retry: rule.retry.as_ref().map(Into::into),
            timeout_ms: rule.timeout.map(ms),
            tags: rule.tags,
            labels: labels(rule.labels),
            ..Self::default()
        }
    }
}

impl TryFrom<v1::Schedule> for Schedule {
    type Error = Error;

    fn try_from(wire: v1::Schedule) -> Result<Self, Error> {
        use v1::schedule::Spec;
        let spec = match wire.spec {
            Some(Spec::Interval(interval)) => ScheduleSpec::Interval {
                every: Duration::from_millis(interval.every_ms),
                first_at: interval.first_at_us.map(at),
            },
            Some(Spec::Cron(cron)) => ScheduleSpec::Cron {
                expression: cron.expression,
                time_zone: cron.time_zone,
            },
            None => return Err(Error::bad_reply("a schedule that never fires")),
        };
        Ok(Self {
            rule: NewSchedule {
                id: wire.id,
                spec,
                catch_up: convert::catch_up(At::top("catch_up"), wire.catch_up)?,
                overlap: convert::overlap(At::top("overlap"), wire.overlap)?,
                paused: wire.paused,
                queue: wire.queue,
                kind: wire.kind,
                payload: wire.payload,
                priority: wire.priority,
                retry: retry(wire.retry)?,
                timeout: wire.timeout_ms.map(Duration::from_millis),
                tags: wire.tags,
                labels: pairs(wire.labels),
            },
            created_at: at(wire.created_at_us),
            next_at: wire.next_at_us.map(at),
            runs: wire.runs,
            last_job: some(wire.last_job),
        })
    }
}
