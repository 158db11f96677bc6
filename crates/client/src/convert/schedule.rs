//! Schedules.

use std::time::Duration;

use ganger_document::raw_json;
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

/// A schedule as stored.
pub(crate) fn schedule(wire: v1::Schedule) -> Result<Schedule, Error> {
    use v1::schedule::Spec;
    let (every, first_at, cron, time_zone) = match wire.spec {
        Some(Spec::Interval(interval)) => {
            let every = Duration::from_millis(interval.every_ms);
            (Some(every), interval.first_at_us.map(at), None, None)
        }
        Some(Spec::Cron(cron)) => (None, None, Some(cron.expression), Some(cron.time_zone)),
        None => return Err(Error::bad_reply("a schedule that never fires")),
    };
    let (payload, payload_base64) = raw_json::show(&wire.payload);
    let schedule = Schedule {
        id: wire.id,
        every,
        first_at,
        cron,
        time_zone,
        catch_up: convert::catch_up(At::top("catch_up"), wire.catch_up)?,
        catch_up_max: None,
        overlap: convert::overlap(At::top("overlap"), wire.overlap)?,
        paused: wire.paused,
        queue: wire.queue,
        kind: wire.kind,
        payload,
        payload_base64,
        priority: convert::priority(At::top("priority"), wire.priority, 0)?,
        retry: retry(wire.retry)?,
        timeout: wire.timeout_ms.map(Duration::from_millis),
        tags: wire.tags,
        labels: pairs(wire.labels).into_iter().collect(),
        created_at: at(wire.created_at_us),
        next_at: wire.next_at_us.map(at),
        next_local: None,
        runs: wire.runs,
        last_job: some(wire.last_job),
    };
    Ok(schedule.completed())
}
