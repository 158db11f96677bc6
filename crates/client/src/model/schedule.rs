//! Schedules, which enqueue jobs repeatedly.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{CatchUp, Overlap, RetryPolicy, Schedule};

/// The times at which a schedule fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleSpec {
    /// At a fixed interval.
    Interval {
        /// Interval between two runs; more than zero.
        every: Duration,
        /// Time of the first run; `None` for one interval from now.
        first_at: Option<SystemTime>,
    },
    /// By a cron expression.
    Cron {
        /// Cron expression of five fields, or six with seconds first, such as `0 3 * * *`.
        expression: String,
        /// Time zone: an IANA name such as `Europe/Rome`, or `UTC`.
        time_zone: String,
    },
}

/// A schedule to create or replace.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSchedule {
    /// Name of the schedule.
    pub id: String,
    /// Times at which the schedule fires.
    pub spec: ScheduleSpec,
    /// What to do about missed runs.
    pub catch_up: CatchUp,
    /// What to do if the job of an earlier run is still live.
    pub overlap: Overlap,
    /// Whether the schedule is paused; runs that become due meanwhile count as missed.
    pub paused: bool,
    /// Queue that the jobs enter.
    pub queue: String,
    /// Kind of the jobs: the program that runs them.
    pub kind: String,
    /// Payload of the jobs.
    pub payload: Bytes,
    /// Priority of the jobs: smaller runs first.
    pub priority: i64,
    /// Retry policy of the jobs; `None` for that of the queue.
    pub retry: Option<RetryPolicy>,
    /// Longest run of one attempt; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Tags of the jobs.
    pub tags: Vec<String>,
    /// Labels of the jobs: indexed key-value pairs.
    pub labels: Vec<(String, String)>,
}

impl NewSchedule {
    /// Creates a schedule of jobs in the queue `default`.
    pub fn new(id: impl Into<String>, kind: impl Into<String>, spec: ScheduleSpec) -> Self {
        Self {
            id: id.into(),
            spec,
            catch_up: CatchUp::default(),
            overlap: Overlap::default(),
            paused: false,
            queue: "default".into(),
            kind: kind.into(),
            payload: Bytes::new(),
            priority: 0,
            retry: None,
            timeout: None,
            tags: Vec::new(),
            labels: Vec::new(),
        }
    }
}

impl From<Schedule> for NewSchedule {
    /// Returns the settings of an existing schedule, to replace it with changes.
    fn from(schedule: Schedule) -> Self {
        let spec = match (schedule.cron, schedule.time_zone) {
            (Some(expression), time_zone) => ScheduleSpec::Cron {
                expression,
                time_zone: time_zone.unwrap_or_default(),
            },
            (None, _) => ScheduleSpec::Interval {
                every: schedule.every.unwrap_or_default(),
                first_at: schedule.first_at,
            },
        };
        let payload = match (schedule.payload, schedule.payload_base64) {
            (Some(exact), _) => Bytes::from(String::from(Box::<str>::from(exact.0))),
            (None, Some(base64)) => base64.0,
            (None, None) => Bytes::new(),
        };
        Self {
            id: schedule.id,
            spec,
            catch_up: schedule.catch_up,
            overlap: schedule.overlap,
            paused: schedule.paused,
            queue: schedule.queue,
            kind: schedule.kind,
            payload,
            priority: schedule.priority.to_whole(),
            retry: schedule.retry,
            timeout: schedule.timeout,
            tags: schedule.tags,
            labels: schedule.labels.into_iter().collect(),
        }
    }
}
