//! Statistics, workers, tags, groups and tracked jobs as documents.

use ganger_types::reply::WorkerView as Shown;
use ganger_types::{Day, Sample, StatisticsRecord};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{GroupName, JobName, KindName, Named, QueueName, TagName, WorkerName};
use crate::time::Moment;

/// What happened in one queue on one day.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Statistics)]
pub struct StatisticsView {
    /// Queue that the numbers are about.
    queue: QueueName,
    /// When, as YYYY-MM-DD in UTC.
    day: String,
    /// Jobs that failed this day and are still failed.
    failed: i64,
    /// Failures ever counted this day.
    failures: u64,
    /// Leases that ran out, and retries.
    retries: u64,
    /// From ready to leased.
    waiting: SampleView,
    /// From leased to completed.
    running: SampleView,
}

/// A sample of durations.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Sample)]
struct SampleView {
    /// Number of durations in the sample.
    count: u64,
    /// Mean of the durations, in seconds.
    mean_seconds: f64,
    /// Standard deviation of the durations, in seconds.
    deviation_seconds: f64,
    /// Bins that are not empty, shortest first.
    histogram: Vec<BinView>,
}

/// A bin of a histogram.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Bin)]
struct BinView {
    /// Durations from so many seconds on.
    from_seconds: u64,
    /// Number of durations in the bin.
    count: u64,
}

/// The day as text.
pub fn day_text(day: Day) -> String {
    let seconds = i64::from(day.0) * 86_400;
    jiff::Timestamp::from_second(seconds)
        .map(|time| time.to_string().chars().take(10).collect())
        .unwrap_or_default()
}

/// The statistics of a queue and day.
pub fn view(record: StatisticsRecord) -> StatisticsView {
    StatisticsView {
        queue: Named(record.queue),
        day: day_text(record.day),
        failed: record.failed,
        failures: record.failures,
        retries: record.retries,
        waiting: sample(&record.waiting),
        running: sample(&record.running),
    }
}

fn sample(sample: &Sample) -> SampleView {
    let others = u32::try_from(sample.count.saturating_sub(1)).unwrap_or(u32::MAX);
    let deviation = if others == 0 {
        0.0
    } else {
        (sample.vk / f64::from(others)).sqrt()
    };
    SampleView {
        count: sample.count,
        mean_seconds: sample.mean,
        deviation_seconds: deviation,
        histogram: sample
            .histogram
            .iter()
            .map(|(bin, count)| BinView {
                from_seconds: bin_start(*bin),
                count: *count,
            })
            .collect(),
    }
}

/// Where a bin begins: seconds 0 to 59, minutes 1 to 59, hours 1 to 23, days 1 to 6.
fn bin_start(bin: u16) -> u64 {
    match u64::from(bin) {
        second @ 0..=59 => second,
        bin @ 60..=118 => (bin - 59) * 60,
        bin @ 119..=141 => (bin - 118) * 3_600,
        bin => (bin - 141) * 86_400,
    }
}

/// Worker and the jobs that it holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerDoc {
    /// Name of the worker.
    worker: WorkerName,
    /// Its last sign of life.
    seen_at: Moment,
    /// Jobs that the worker holds a lease on.
    holds: Vec<HeldView>,
}

/// A job that a worker holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HeldJob)]
struct HeldView {
    /// Id of the job.
    job: JobName,
    /// Queue of the job.
    queue: QueueName,
    /// Kind of the job.
    kind: KindName,
    /// Time at which the job was leased.
    leased_at: Moment,
}

/// List of the workers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Workers)]
pub struct WorkersDoc {
    /// Workers in the order of their names.
    pub workers: Vec<WorkerDoc>,
}

/// Converts a worker to its document.
pub fn worker(shown: Shown) -> WorkerDoc {
    let held = |(job, queue, kind, at)| HeldView {
        job: Named(job),
        queue: Named(queue),
        kind: Named(kind),
        leased_at: Moment(at),
    };
    WorkerDoc {
        worker: Named(shown.worker),
        seen_at: Moment(shown.seen_at),
        holds: shown.holds.into_iter().map(held).collect(),
    }
}

/// Failure group and its size.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FailureGroup)]
pub struct GroupView {
    /// Name of the failure group.
    pub group: GroupName,
    /// Kept jobs in it.
    pub count: u64,
}

/// List of the failure groups.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FailureGroups)]
pub struct GroupsView {
    /// Failure groups, by name.
    pub groups: Vec<GroupView>,
}

/// Tag and its use.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tag)]
pub struct TagView {
    /// Name of the tag.
    pub tag: TagName,
    /// Jobs that bear it.
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
    /// Jobs that are tracked.
    pub jobs: Vec<TrackedView>,
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
