//! Schedules: to messages from stored schedules, and to the documents of HTTP and the SDK.

use std::time::Duration;

use ganger_document::raw_json;
use ganger_document::view::schedule::Schedule;
use ganger_types::observed::ObservedSchedule;
use ganger_types::{ScheduleRecord, ScheduleSpec};

use super::{
    At, FieldError, calendar, catch_up, job_state, label_messages, ms, non_empty, overlap, pairs,
    priority, retry_if_any, tag_texts, text_or_empty,
};
use crate::v1;

impl From<&ScheduleRecord> for v1::Schedule {
    fn from(record: &ScheduleRecord) -> Self {
        use v1::schedule::Spec;
        let spec = match &record.spec {
            ScheduleSpec::Interval { every, first_at } => Spec::Interval(v1::Interval {
                every_ms: ms(*every),
                first_at_us: Some(first_at.0),
            }),
            ScheduleSpec::Cron {
                expression,
                time_zone,
            } => Spec::Cron(v1::Cron {
                expression: expression.clone(),
                time_zone: time_zone.clone(),
            }),
        };
        Self {
            id: record.id.to_text().into_owned(),
            spec: Some(spec),
            catch_up: Some(record.catch_up.into()),
            overlap: i32::from(v1::Overlap::from(record.overlap)),
            paused: record.paused,
            queue: record.queue.to_text().into_owned(),
            kind: record.kind.to_text().into_owned(),
            payload: record.payload.clone(),
            priority: record.priority.to_whole(),
            retry: record.retry.as_ref().map(Into::into),
            timeout_ms: record.timeout.map(ms),
            tags: tag_texts(&record.tags),
            labels: label_messages(&record.labels),
            created_at_us: record.created_at.0,
            next_at_us: record.next_at.filter(|_| !record.paused).map(|at| at.0),
            runs: record.runs,
            last_job: text_or_empty(record.last_job.as_ref()),
            last_state: 0,
            last_ran_us: None,
            shard: String::new(),
        }
    }
}

impl From<&ObservedSchedule> for v1::Schedule {
    fn from(observed: &ObservedSchedule) -> Self {
        Self {
            last_state: observed
                .last_state
                .map_or(0, |state| i32::from(v1::JobState::from(state))),
            last_ran_us: observed
                .last_ran_for
                .map(|ran| u64::try_from(ran.as_micros()).unwrap_or(u64::MAX)),
            ..Self::from(&observed.record)
        }
    }
}

/// The document of a schedule.
///
/// # Errors
/// If the schedule has no rule, or a field has a value that this version does not know.
pub fn schedule(wire: v1::Schedule) -> Result<Schedule, FieldError> {
    use v1::schedule::Spec;
    let (every, first_at, cron, time_zone) = match wire.spec {
        Some(Spec::Interval(interval)) => {
            let every = Duration::from_millis(interval.every_ms);
            (Some(every), interval.first_at_us.map(calendar), None, None)
        }
        Some(Spec::Cron(cron)) => (None, None, Some(cron.expression), Some(cron.time_zone)),
        None => {
            return Err(FieldError::missing(
                At::top("spec"),
                "an interval or a cron expression",
            ));
        }
    };
    let (payload, payload_base64) = raw_json::show(&wire.payload);
    let schedule = Schedule {
        id: wire.id,
        every,
        first_at,
        cron,
        time_zone,
        catch_up: catch_up(At::top("catch_up"), wire.catch_up)?,
        catch_up_max: None,
        overlap: overlap(At::top("overlap"), wire.overlap)?,
        paused: wire.paused,
        queue: wire.queue,
        kind: wire.kind,
        payload,
        payload_base64,
        priority: priority(At::top("priority"), wire.priority, 0)?,
        retry: retry_if_any(At::top("retry"), wire.retry.as_ref())?,
        timeout: wire.timeout_ms.map(Duration::from_millis),
        tags: wire.tags,
        labels: pairs(wire.labels).into_iter().collect(),
        created_at: calendar(wire.created_at_us),
        next_at: wire.next_at_us.map(calendar),
        next_local: None,
        runs: wire.runs,
        last_job: non_empty(wire.last_job),
        last_state: job_state(At::top("last_state"), wire.last_state)?,
        last_ran_for: wire.last_ran_us.map(Duration::from_micros),
        shard: non_empty(wire.shard),
    };
    Ok(schedule.completed())
}
