//! Schedules as documents, in the form in which they are put.

use std::collections::BTreeMap;

use ganger_types::{CatchUp, ScheduleRecord, ScheduleSpec, Timestamp};
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use crate::names::{JobName, KindName, Named, QueueName, ScheduleName, TagName};
use crate::one_of::{CatchUpWord, OneOf, OverlapWord};
use crate::raw_json::{self, Base64, RawJson};
use crate::retry::RetryDocument;
use crate::time::{Moment, Span};
use crate::view::{labels, priority, tags};

/// Schedule: when it fires, and the jobs that it makes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub struct ScheduleView {
    /// Name of the schedule.
    id: ScheduleName,
    /// So long between two runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<Span>,
    /// Time of the first run, if one is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_at: Option<Moment>,
    /// Cron expression; absent if the schedule has a fixed interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    /// Time zone of the cron expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
    /// Which missed runs are made up for: `none`, `last` or `all`.
    catch_up: CatchUpWord,
    /// Maximum number of missed runs made up for, with `catch_up` = `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    catch_up_max: Option<u32>,
    /// What happens if the previous run is still live: `allow`, `skip` or `replace`.
    overlap: OverlapWord,
    /// Fires nothing while set.
    paused: bool,
    /// Where its jobs line up.
    queue: QueueName,
    /// Which program runs them.
    kind: KindName,
    /// Their payload, if that is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<RawJson>,
    /// Payload in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<Base64>,
    /// Priority of the jobs: smaller runs first.
    #[schema(value_type = f64)]
    priority: Number,
    /// How they are tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryDocument>,
    /// How long one attempt may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    /// Tags of the schedule's jobs.
    tags: Vec<TagName>,
    /// Labels of the schedule's jobs.
    labels: BTreeMap<String, String>,
    /// When it was made.
    created_at: Moment,
    /// The next run; absent when there are no more, and while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_at: Option<Moment>,
    /// The next run of a `cron` in its own zone, such as `2026-11-23T03:30:00+01:00[Europe/Rome]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_local: Option<String>,
    /// Jobs made so far.
    runs: u64,
    /// The job made last.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_job: Option<JobName>,
}

/// List of the schedules.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedules)]
pub struct SchedulesView {
    /// Schedules in the order of their names.
    pub schedules: Vec<ScheduleView>,
}

/// Next times at which the schedule fires.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduleTimes)]
pub struct TimesView {
    /// Earliest first; fewer than asked for if the schedule ends.
    pub times: Vec<TimeView>,
}

/// A time to come.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduleTime)]
pub struct TimeView {
    /// Time of the run.
    at: Moment,
    /// Of a `cron`: in its own zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<String>,
}

/// Times of a schedule with this rule.
pub fn times(times: Vec<Timestamp>, spec: &ScheduleSpec) -> TimesView {
    let view = |at| TimeView {
        at: Moment(at),
        local: local(at, spec),
    };
    TimesView {
        times: times.into_iter().map(view).collect(),
    }
}

/// A time in the zone of a cron rule, with the zone named.
fn local(at: Timestamp, spec: &ScheduleSpec) -> Option<String> {
    let ScheduleSpec::Cron { time_zone, .. } = spec else {
        return None;
    };
    let zone = jiff::tz::TimeZone::get(time_zone).ok()?;
    let micros = i64::try_from(at.0).ok()?;
    let time = jiff::Timestamp::from_microsecond(micros).ok()?;
    Some(time.to_zoned(zone).to_string())
}

/// Converts a schedule to its document.
pub fn view(record: ScheduleRecord) -> ScheduleView {
    let (payload, payload_base64) = raw_json::show(&record.payload);
    let next_at = record.next_at.filter(|_| !record.paused);
    let next_local = next_at.and_then(|at| local(at, &record.spec));
    let (every, first_at, cron, time_zone) = match record.spec {
        ScheduleSpec::Interval { every, first_at } => {
            (Some(Span(every)), Some(Moment(first_at)), None, None)
        }
        ScheduleSpec::Cron {
            expression,
            time_zone,
        } => (None, None, Some(expression), Some(time_zone)),
    };
    let catch_up_max = match record.catch_up {
        CatchUp::All { max } => Some(max),
        CatchUp::None | CatchUp::Last => None,
    };
    ScheduleView {
        id: Named(record.id),
        every,
        first_at,
        cron,
        time_zone,
        catch_up: OneOf(record.catch_up),
        catch_up_max,
        overlap: OneOf(record.overlap),
        paused: record.paused,
        queue: Named(record.queue),
        kind: Named(record.kind),
        payload,
        payload_base64,
        priority: priority(record.priority),
        retry: record.retry.as_ref().map(Into::into),
        timeout: record.timeout.map(Span),
        tags: tags(&record.tags),
        labels: labels(&record.labels),
        created_at: Moment(record.created_at),
        next_at: next_at.map(Moment),
        next_local,
        runs: record.runs,
        last_job: record.last_job.map(Named),
    }
}
