//! A schedule, in the same form as in requests.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use ganger_types::limits::SCHEDULE_BACKLOG_MAX;
use ganger_types::observed::ObservedSchedule;
use ganger_types::{
    CatchUp, JobState, Overlap, Priority, RetryPolicy, ScheduleRecord, ScheduleSpec, Timestamp,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::text;
use crate::one_of::{CatchUpWord, OverlapWord, StateWord, word, word_if_any};
use crate::raw_json::{self, Base64, RawJson};
use crate::retry::{RetryDocument, as_document_if_any};
use crate::time::{Moment, Span, calendar, moment, moment_if_any, seconds_if_any, span_if_any};
use crate::view::{as_number, labels, texts};

/// Schedule: when it fires, and the jobs that it makes.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Schedule {
    /// Name of the schedule.
    pub id: String,
    /// Time between two runs; absent if the schedule has a cron expression.
    #[serde(
        serialize_with = "span_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Span>)]
    pub every: Option<Duration>,
    /// Time of the first run; absent if the schedule has a cron expression.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub first_at: Option<SystemTime>,
    /// Cron expression; absent if the schedule has a fixed interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Time zone of the cron expression; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Rule for missed runs: `none`, `last` or `all`.
    #[serde(serialize_with = "word")]
    #[schema(value_type = CatchUpWord)]
    pub catch_up: CatchUp,
    /// Maximum number of missed runs for which jobs are enqueued, 1 to 10,000; absent unless `catch_up` is `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up_max: Option<u32>,
    /// Rule for a run while the previous job is live: `allow`, `skip` or `replace`.
    #[serde(serialize_with = "word")]
    #[schema(value_type = OverlapWord)]
    pub overlap: Overlap,
    /// Whether the schedule is paused: nothing fires.
    pub paused: bool,
    /// Queue that its jobs enter.
    pub queue: String,
    /// Kind of its jobs: the program that runs them.
    pub kind: String,
    /// Payload of its jobs, if that is JSON; absent if it is not, or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<RawJson>,
    /// Payload of its jobs in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<Base64>,
    /// Priority of its jobs: smaller runs first.
    #[serde(serialize_with = "as_number")]
    #[schema(value_type = f64)]
    pub priority: Priority,
    /// Retry policy of its jobs; absent: that of the queue.
    #[serde(
        serialize_with = "as_document_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<RetryDocument>)]
    pub retry: Option<RetryPolicy>,
    /// Maximum time of one attempt; absent: no limit.
    #[serde(
        serialize_with = "span_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Span>)]
    pub timeout: Option<Duration>,
    /// Tags of its jobs.
    pub tags: Vec<String>,
    /// Labels of its jobs.
    pub labels: BTreeMap<String, String>,
    /// Time at which the schedule was created.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub created_at: SystemTime,
    /// Time of the next run; absent if there is none, and while the schedule is paused.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub next_at: Option<SystemTime>,
    /// Time of the next run of a `cron` in its own zone, such as `2026-11-23T03:30:00+01:00[Europe/Rome]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_local: Option<String>,
    /// Number of jobs enqueued so far.
    pub runs: u64,
    /// Id of the last job that was enqueued; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_job: Option<String>,
    /// State of the last job; absent before the first, once it is gone, and in answers to changes.
    #[serde(
        serialize_with = "word_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<StateWord>)]
    pub last_state: Option<JobState>,
    /// How long the last attempt of the last job ran, in documents in seconds; absent if none has ended.
    #[serde(
        rename = "last_ran_seconds",
        serialize_with = "seconds_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub last_ran_for: Option<Duration>,
    /// Shard that has it; absent unless the list is of all shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
}

/// List of the schedules.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Schedules {
    /// Schedules in the order of their names.
    pub schedules: Vec<Schedule>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Next times at which a schedule fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ScheduleTimes {
    /// Times in order; fewer than requested if the schedule ends.
    pub times: Vec<ScheduleTime>,
}

/// A time at which a schedule fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ScheduleTime {
    /// Time of the run.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub at: SystemTime,
    /// Time in the zone of a `cron`, such as `2026-11-23T03:30:00+01:00[Europe/Rome]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
}

impl ScheduleTime {
    /// A time of a schedule whose cron expression has this time zone; `None`: a schedule without one.
    pub fn new(at: SystemTime, time_zone: Option<&str>) -> Self {
        let local = time_zone.and_then(|zone| in_zone(at, zone));
        Self { at, local }
    }
}

impl ScheduleTimes {
    /// Times of a schedule with this rule.
    pub fn new(times: Vec<Timestamp>, spec: &ScheduleSpec) -> Self {
        let time_zone = match spec {
            ScheduleSpec::Cron { time_zone, .. } => Some(time_zone.as_str()),
            ScheduleSpec::Interval { .. } => None,
        };
        let times = times.into_iter();
        Self {
            times: times
                .map(|at| ScheduleTime::new(calendar(at), time_zone))
                .collect(),
        }
    }
}

/// A time in a zone, with the name of the zone; `None` if this machine does not have the zone.
fn in_zone(at: SystemTime, time_zone: &str) -> Option<String> {
    let zone = jiff::tz::TimeZone::get(time_zone).ok()?;
    let time = jiff::Timestamp::try_from(at).ok()?;
    Some(time.to_zoned(zone).to_string())
}

/// Maximum number of missed runs for which jobs are enqueued; `None` unless the rule is `all`.
fn catch_up_max(rule: CatchUp) -> Option<u32> {
    match rule {
        CatchUp::All { max: 0 } => Some(SCHEDULE_BACKLOG_MAX),
        CatchUp::All { max } => Some(max),
        CatchUp::None | CatchUp::Last => None,
    }
}

impl Schedule {
    /// Sets the fields that follow from others: `catch_up_max`, `next_local`, and no next run while it is paused.
    #[must_use]
    pub fn completed(self) -> Self {
        let next_at = self.next_at.filter(|_| !self.paused);
        let next = next_at.map(|at| ScheduleTime::new(at, self.time_zone.as_deref()));
        Self {
            catch_up_max: catch_up_max(self.catch_up),
            next_at,
            next_local: next.and_then(|next| next.local),
            ..self
        }
    }
}

impl From<ObservedSchedule> for Schedule {
    fn from(observed: ObservedSchedule) -> Self {
        Self {
            last_state: observed.last_state,
            last_ran_for: observed.last_ran_for,
            ..Self::from(observed.record)
        }
    }
}

impl From<ScheduleRecord> for Schedule {
    fn from(record: ScheduleRecord) -> Self {
        let (payload, payload_base64) = raw_json::show(&record.payload);
        let (every, first_at, cron, time_zone) = match record.spec {
            ScheduleSpec::Interval { every, first_at } => {
                (Some(every), Some(calendar(first_at)), None, None)
            }
            ScheduleSpec::Cron {
                expression,
                time_zone,
            } => (None, None, Some(expression), Some(time_zone)),
        };
        let schedule = Self {
            id: text(record.id.as_bytes()),
            every,
            first_at,
            cron,
            time_zone,
            catch_up: record.catch_up,
            catch_up_max: None,
            overlap: record.overlap,
            paused: record.paused,
            queue: text(record.queue.as_bytes()),
            kind: text(record.kind.as_bytes()),
            payload,
            payload_base64,
            priority: record.priority,
            retry: record.retry,
            timeout: record.timeout,
            tags: texts(&record.tags),
            labels: labels(&record.labels),
            created_at: calendar(record.created_at),
            next_at: record.next_at.map(calendar),
            next_local: None,
            runs: record.runs,
            last_job: record.last_job.map(|job| text(job.as_bytes())),
            last_state: None,
            last_ran_for: None,
            shard: None,
        };
        schedule.completed()
    }
}
