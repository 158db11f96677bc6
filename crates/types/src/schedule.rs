//! Recurring jobs: rules that enqueue again and again.

use std::time::Duration;

use crate::job::{Priority, RetryPolicy};
use crate::name::{Kind, LabelKey, LabelValue, Namespace, Queue, ScheduleId, Tag};
use crate::time::Timestamp;
use crate::words::{Words, words};
use bytes::Bytes;

/// The rule by which a schedule fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleSpec {
    /// Every so often, first at the given time (as qless `recur`).
    Interval {
        /// Between two runs; more than zero.
        every: Duration,
        /// The time of the first run.
        first_at: Timestamp,
    },
    /// By a cron expression of five or six fields (with seconds), in a time zone.
    Cron {
        /// Such as `0 3 * * *`.
        expression: String,
        /// An IANA name such as `Europe/Rome`; `UTC` by default.
        time_zone: String,
    },
}

/// What happens to runs that fell due while nobody looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// No job is made for missed runs.
    None,
    /// One job stands for all of them (default).
    #[default]
    Last,
    /// Each is made up for, at most so many of the newest.
    All {
        /// At most so many; 0 stands for [`crate::limits::SCHEDULE_BACKLOG_MAX`].
        max: u32,
    },
}

impl CatchUp {
    /// The word for it, as documents write it.
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
    /// The new job is made; both are live (the default).
    #[default]
    Allow,
    /// The new run is skipped.
    Skip,
    /// The earlier job is cancelled.
    Replace,
}
words!(Overlap { "allow" => Allow, "skip" => Skip, "replace" => Replace });

/// A schedule, as given and as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleRecord {
    /// The namespace of the schedule and its jobs.
    pub namespace: Namespace,
    /// The id of the schedule.
    pub id: ScheduleId,
    /// The rule by which it fires.
    pub spec: ScheduleSpec,
    /// What happens to missed runs.
    pub catch_up: CatchUp,
    /// What happens to a run while the last job is live.
    pub overlap: Overlap,
    /// Fires nothing while set; runs that fall due meanwhile count as missed.
    pub paused: bool,
    /// Where its jobs line up.
    pub queue: Queue,
    /// Which program runs them.
    pub kind: Kind,
    /// The payload of its jobs.
    pub payload: Bytes,
    /// The priority of its jobs.
    pub priority: Priority,
    /// How they are tried again; `None` falls back to queue and namespace.
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may run.
    pub timeout: Option<Duration>,
    /// The tags of its jobs.
    pub tags: Vec<Tag>,
    /// The labels of its jobs.
    pub labels: Vec<(LabelKey, LabelValue)>,
    /// When it was made.
    pub created_at: Timestamp,
    /// The next run; `None` when the expression has no more.
    pub next_at: Option<Timestamp>,
    /// Jobs made so far.
    pub runs: u64,
    /// The job made last, to judge overlap.
    pub last_job: Option<crate::id::JobId>,
}
