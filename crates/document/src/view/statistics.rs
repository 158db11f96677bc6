//! Statistics, tags, groups and tracked jobs as documents.

use std::time::SystemTime;

use ganger_types::{Day, Sample, StatisticsRecord};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{JobName, TagName, text};
use crate::time::{Moment, moment_if_any};

/// The statistics of one queue on one day.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Statistics {
    /// Queue that the numbers are about.
    pub queue: String,
    /// The day in UTC, as YYYY-MM-DD.
    pub day: String,
    /// Number of jobs that failed on this day and are still failed.
    pub failed: i64,
    /// Number of failures on this day.
    pub failures: u64,
    /// Number of lease expirations and retries on this day.
    pub retries: u64,
    /// Times from ready to leased.
    pub waiting: DurationSample,
    /// Times from leased to completed.
    pub running: DurationSample,
}

/// A sample of durations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = Sample)]
pub struct DurationSample {
    /// Number of durations in the sample.
    pub count: u64,
    /// Mean of the durations, in seconds.
    pub mean_seconds: f64,
    /// Standard deviation of the durations, in seconds.
    pub deviation_seconds: f64,
    /// Bins that are not empty, shortest first.
    pub histogram: Vec<Bin>,
}

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Bin {
    /// Shortest duration in the bin, in seconds.
    pub from_seconds: u64,
    /// Number of durations in the bin.
    pub count: u64,
}

impl Bin {
    /// Returns the bin with this number: 0 to 59 are seconds, 60 to 118 minutes from 1, 119 to 141 hours from 1, 142 to
    /// 147 days from 1.
    pub fn new(number: u16, count: u64) -> Self {
        Self {
            from_seconds: bin_start(number),
            count,
        }
    }
}

/// The day as text.
pub fn day_text(day: Day) -> String {
    let seconds = i64::from(day.0) * 86_400;
    jiff::Timestamp::from_second(seconds)
        .map(|time| time.to_string().chars().take(10).collect())
        .unwrap_or_default()
}

impl From<StatisticsRecord> for Statistics {
    fn from(record: StatisticsRecord) -> Self {
        Self {
            queue: text(record.queue.as_bytes()),
            day: day_text(record.day),
            failed: record.failed,
            failures: record.failures,
            retries: record.retries,
            waiting: (&record.waiting).into(),
            running: (&record.running).into(),
        }
    }
}

impl From<&Sample> for DurationSample {
    fn from(sample: &Sample) -> Self {
        let bins = sample.histogram.iter();
        Self {
            count: sample.count,
            mean_seconds: sample.mean,
            deviation_seconds: deviation(sample),
            histogram: bins.map(|(bin, count)| Bin::new(*bin, *count)).collect(),
        }
    }
}

/// Standard deviation of a sample, in seconds; 0 for fewer than two durations.
pub fn deviation(sample: &Sample) -> f64 {
    // A count beyond 32 bits would not change the result visibly.
    let others = u32::try_from(sample.count.saturating_sub(1)).unwrap_or(u32::MAX);
    if others == 0 {
        return 0.0;
    }
    (sample.vk / f64::from(others)).sqrt()
}

/// The start of a bin in seconds. Bins are seconds 0 to 59, minutes 1 to 59, hours 1 to 23, days 1 to 6.
fn bin_start(bin: u16) -> u64 {
    match u64::from(bin) {
        second @ 0..=59 => second,
        bin @ 60..=118 => (bin - 59) * 60,
        bin @ 119..=141 => (bin - 118) * 3_600,
        bin => (bin - 141) * 86_400,
    }
}

/// Failure group and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FailureGroup {
    /// Name of the failure group.
    pub group: String,
    /// Number of kept jobs in the group.
    #[serde(rename = "count")]
    pub jobs: u64,
    /// Time of the first failure that is known; absent if none is.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub first_at: Option<SystemTime>,
    /// Time of the last failure; absent if none is known.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub last_at: Option<SystemTime>,
    /// Message of the last failure, cut at 500 bytes; absent if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The five queues with the most failures.
    pub by_queue: Vec<FailuresOf>,
    /// The five kinds with the most failures.
    pub by_kind: Vec<FailuresOf>,
    /// Number of failures in each ten minutes of the last hour, the oldest first.
    pub last_hour: [u64; 6],
    /// Shard of the jobs; absent unless the list is of all shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
}

/// Number of failures of a queue or a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FailuresOf {
    /// Name of the queue or kind.
    pub name: String,
    /// Number of its failures.
    pub count: u64,
}

/// List of the failure groups.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FailureGroups)]
pub struct GroupsView {
    /// Failure groups, the last failure first.
    pub groups: Vec<FailureGroup>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Tag and its use.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tag)]
pub struct TagView {
    /// Name of the tag.
    pub tag: TagName,
    /// Number of jobs with the tag.
    pub count: u64,
}

/// The most used tags.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tags)]
pub struct TagsView {
    /// Tags, the most used first.
    pub tags: Vec<TagView>,
}

/// Job id that is tracked.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TrackedJob)]
pub struct TrackedView {
    /// Id of the job.
    pub job: JobName,
    /// Time since which the job is tracked.
    pub since: Moment,
}

/// List of the tracked jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TrackedJobs)]
pub struct TrackedListView {
    /// Jobs that are tracked, the first tracked first.
    pub jobs: Vec<TrackedView>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::statistics::HISTOGRAM_BINS;

    #[test]
    fn bins_begin_where_the_one_before_ends() {
        let starts = [
            (0, 0),
            (59, 59),
            (60, 60),
            (118, 3_540),
            (119, 3_600),
            (141, 82_800),
            (142, 86_400),
        ];
        for (bin, start) in starts {
            assert_eq!(bin_start(bin), start, "bin {bin}");
        }
        let last = u16::try_from(HISTOGRAM_BINS - 1).expect("few");
        assert_eq!(bin_start(last), 6 * 86_400);
        assert_eq!(day_text(Day(0)), "1970-01-01");
    }
}
