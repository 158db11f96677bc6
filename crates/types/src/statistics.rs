//! Statistics per queue and day: counts, and streaming mean, variance and histogram of waiting and running times.

use crate::name::{Namespace, Queue};

/// A day of the wall clock, UTC: seconds since the epoch divided by 86 400.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub u32);

/// Bins of the histogram: seconds 0 to 59, minutes 1 to 59, hours 1 to 23, days 1 to 6.
pub const HISTOGRAM_BINS: usize = 148;

/// A sample of durations in seconds, kept in streaming form (Welford).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Number of durations in the sample.
    pub count: u64,
    /// Mean in seconds; 0 without durations.
    pub mean: f64,
    /// Sum of squared differences from the mean.
    pub vk: f64,
    /// Number and count of each bin that is not empty, in order.
    pub histogram: Vec<(u16, u64)>,
}

/// The statistics of one queue on one day.
#[derive(Clone, Debug, PartialEq)]
pub struct StatisticsRecord {
    /// The namespace of the queue.
    pub namespace: Namespace,
    /// The queue that the statistics are about.
    pub queue: Queue,
    /// The day that the statistics cover, in UTC.
    pub day: Day,
    /// Number of jobs that failed on this day and are still failed.
    pub failed: i64,
    /// Number of failures on this day.
    pub failures: u64,
    /// Number of lease expirations and retries on this day.
    pub retries: u64,
    /// Times from ready to leased.
    pub waiting: Sample,
    /// Times from leased to completed.
    pub running: Sample,
}
