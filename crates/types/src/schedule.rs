//! Schedules: rules that enqueue jobs repeatedly.

use std::time::Duration;

use crate::job::{Priority, RetryPolicy};
use crate::name::{Kind, LabelKey, LabelValue, Namespace, Queue, ScheduleId, Tag};
use crate::time::Timestamp;
use crate::words::{Words, words};
use bytes::Bytes;

/// The times at which a schedule enqueues a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleSpec {
    /// At a fixed interval, first at a given time.
    Interval {
        /// Interval between two runs; at least [`crate::limits::SCHEDULE_EVERY_MIN`].
        every: Duration,
        /// The time of the first run.
        first_at: Timestamp,
    },
    /// By a cron expression of five fields, or six with seconds, in a time zone.
    Cron {
        /// Cron expression such as `0 3 * * *`.
        expression: String,
        /// IANA name of the time zone, such as `Europe/Rome`; `UTC` by default.
        time_zone: String,
    },
}

/// What happens to runs that were missed while the server was down or the schedule paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// Missed runs are skipped.
    None,
    /// One job is enqueued for all missed runs (the default).
    #[default]
    Last,
    /// A job is enqueued for each of the newest missed runs.
    All {
        /// Maximum number of jobs; 0: [`crate::limits::SCHEDULE_BACKLOG_MAX`].
        max: u32,
    },
}

impl CatchUp {
    /// The word for this rule in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Last => "last",
            Self::All { .. } => "all",
        }
    }
}

impl Words for CatchUp {
    const NAME: &'static str = "CatchUp";
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("last", Self::Last),
        ("all", Self::All { max: 0 }),
    ];

    fn word(self) -> &'static str {
        self.as_str()
    }
}

/// What happens when a run is due and the job of an earlier one is still live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// The new job is enqueued; both are live (the default).
    #[default]
    Allow,
    /// The new run is skipped.
    Skip,
    /// The earlier job is cancelled.
    Replace,
}
words!(Overlap { "allow" => Allow, "skip" => Skip, "replace" => Replace });

/// A schedule as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleRecord {
    /// The namespace of the schedule and its jobs.
    pub namespace: Namespace,
    /// The id of the schedule.
    pub id: ScheduleId,
    /// Times of the runs.
    pub spec: ScheduleSpec,
    /// Rule for missed runs.
    pub catch_up: CatchUp,
    /// Rule for a run while an earlier job is live.
    pub overlap: Overlap,
    /// Whether the schedule is paused; runs that become due meanwhile count as missed.
    pub paused: bool,
    /// Queue of its jobs.
    pub queue: Queue,
    /// Kind of its jobs: names the program that runs them.
    pub kind: Kind,
    /// The payload of its jobs.
    pub payload: Bytes,
    /// The priority of its jobs.
    pub priority: Priority,
    /// Retry policy of its jobs; `None`: as the queue says.
    pub retry: Option<RetryPolicy>,
    /// Maximum time of one attempt; `None`: no limit.
    pub timeout: Option<Duration>,
    /// The tags of its jobs.
    pub tags: Vec<Tag>,
    /// The labels of its jobs.
    pub labels: Vec<(LabelKey, LabelValue)>,
    /// Time at which the schedule was created.
    pub created_at: Timestamp,
    /// Time of the next run; `None` if there is none.
    pub next_at: Option<Timestamp>,
    /// Number of jobs enqueued so far.
    pub runs: u64,
    /// Last job that was enqueued, to detect an overlap; `None` before the first.
    pub last_job: Option<crate::id::JobId>,
}
