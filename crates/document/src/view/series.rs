//! Series for charts as documents: values step by step, distributions of durations, and totals by kind.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::Serialize;
use utoipa::ToSchema;

use crate::time::{Moment, moment};

/// Values of metrics, step by step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Series {
    /// Beginning of the first step.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub from: SystemTime,
    /// Length of a step in seconds: 10, 60 or 3600.
    pub step_seconds: u32,
    /// One entry for each queue and metric, the most active queues first.
    pub series: Vec<SeriesLine>,
    /// Whether entries were left out: ask for fewer metrics, a shorter time or one queue.
    pub truncated: bool,
}

/// One metric of one queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SeriesLine {
    /// Name of the queue; null for several queues together.
    pub queue: Option<String>,
    /// Whether these are all queues that have no series of their own, because too many are more active.
    pub other: bool,
    /// Name of the metric.
    pub metric: String,
    /// One value for each step, oldest first; null where nothing was counted.
    pub values: Vec<Option<u64>>,
}

/// How long jobs waited and attempts ran.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Latency {
    /// Times from ready to leased.
    pub waiting: Durations,
    /// Times from leased to the end of the attempt.
    pub running: Durations,
}

/// Distribution of durations, each known within 10 %.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Durations {
    /// Number of durations in all bins.
    pub count: u64,
    /// Duration in seconds for each quantile; null without durations.
    pub quantiles: BTreeMap<String, Option<f64>>,
    /// Bins that are not empty, shortest first; absent in lists of kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bins: Option<Vec<DurationBin>>,
}

/// A bin of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct DurationBin {
    /// Beginning of the bin in seconds; 0 for all durations below a millisecond.
    pub from_seconds: f64,
    /// Number of durations in the bin.
    pub count: u32,
}

/// What happened to the jobs of each kind.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Kinds {
    /// Kinds in the order of their names.
    pub kinds: Vec<KindTotals>,
    /// Name to give as `after` for the next page; null on the last.
    pub next: Option<String>,
}

/// What happened to the jobs of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct KindTotals {
    /// Name of the kind; null for all that have no series of their own, at the end of the last page.
    pub kind: Option<String>,
    /// Number of attempts that started.
    pub started: u64,
    /// Number of jobs that succeeded.
    pub succeeded: u64,
    /// Number of jobs that failed.
    pub failed: u64,
    /// Times from ready to leased.
    pub waiting: Durations,
    /// Times from leased to the end of the attempt.
    pub running_time: Durations,
}
