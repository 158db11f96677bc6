//! Schedules to be put.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ganger_proto::{convert, v1};
use ganger_types::{Kind, Namespace, ScheduleId, ScheduleRecord, ScheduleSpec, Timestamp};

use super::{At, labels, ms, name, priority, queue, retry, tags};
use crate::problem::Problem;

/// A schedule to be put.
pub(crate) fn schedule(
    namespace: Namespace,
    wire: Option<v1::Schedule>,
) -> Result<ScheduleRecord, Problem> {
    let at = At::top("schedule");
    let wire = wire.ok_or_else(|| Problem::missing(at, "give the schedule"))?;
    let policy = wire
        .retry
        .as_ref()
        .map(|policy| retry(at.field("retry"), policy))
        .transpose()?;
    Ok(ScheduleRecord {
        namespace,
        id: name(at.field("id"), &wire.id, ScheduleId::new)?,
        spec: spec(at, wire.spec)?,
        catch_up: convert::catch_up(at.field("catch_up"), wire.catch_up)?,
        overlap: convert::overlap(at.field("overlap"), wire.overlap)?,
        paused: wire.paused,
        queue: queue(at.field("queue"), &wire.queue)?,
        kind: name(at.field("kind"), &wire.kind, Kind::new)?,
        payload: wire.payload,
        priority: priority(at.field("priority"), wire.priority)?,
        retry: policy,
        timeout: wire.timeout_ms.map(ms),
        tags: tags(at.field("tags"), &wire.tags)?,
        labels: labels(at.field("labels"), &wire.labels)?,
        created_at: Timestamp(0),
        next_at: None,
        runs: 0,
        last_job: None,
    })
}

/// The times of a schedule that is not saved. Its name and kind do not matter.
pub(crate) fn preview(wire: Option<v1::Schedule>) -> Result<ScheduleSpec, Problem> {
    let at = At::top("schedule");
    let wire = wire.ok_or_else(|| Problem::missing(at, "give the schedule"))?;
    spec(at, wire.spec)
}

fn spec(at: At<'_>, wire: Option<v1::schedule::Spec>) -> Result<ScheduleSpec, Problem> {
    use v1::schedule::Spec;
    match wire {
        Some(Spec::Interval(wire)) => {
            let every = ms(wire.every_ms);
            if every.is_zero() {
                let at = at.field("interval");
                return Err(Problem::invalid(
                    at.field("every_ms"),
                    "must be more than 0",
                ));
            }
            let first_at = wire
                .first_at_us
                .map_or_else(|| wall().after(every), Timestamp);
            Ok(ScheduleSpec::Interval { every, first_at })
        }
        Some(Spec::Cron(wire)) => Ok(ScheduleSpec::Cron {
            expression: wire.expression,
            time_zone: Some(wire.time_zone)
                .filter(|zone| !zone.is_empty())
                .unwrap_or_else(|| "UTC".into()),
        }),
        None => Err(Problem::missing(
            at,
            "give an interval or a cron expression",
        )),
    }
}

fn wall() -> Timestamp {
    let since: Duration = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(0).after(since)
}
