//! Statistics, workers, events.

use ganger_proto::v1;
use ganger_types::reply::WorkerView;
use ganger_types::{Event, Happening, JobState, Sample, ShardId, StatisticsRecord};

use super::{global, state, text};

/// What happened in one queue on one day.
pub(crate) fn statistics(record: &StatisticsRecord) -> v1::StatisticsReply {
    v1::StatisticsReply {
        day: record.day.0,
        failed: record.failed,
        failures: record.failures,
        retries: record.retries,
        waiting: Some(sample(&record.waiting)),
        running: Some(sample(&record.running)),
    }
}

fn sample(sample: &Sample) -> v1::Sample {
    let deviation_seconds = match sample.count {
        0 | 1 => 0.0,
        // A count beyond 32 bits changes nothing that could be seen.
        more => (sample.vk / f64::from(u32::try_from(more - 1).unwrap_or(u32::MAX))).sqrt(),
    };
    let bin = |&(bin, count): &(u16, u64)| v1::Bin {
        bin: u32::from(bin),
        count,
    };
    v1::Sample {
        count: sample.count,
        mean_seconds: sample.mean,
        deviation_seconds,
        histogram: sample.histogram.iter().map(bin).collect(),
    }
}

/// A worker with what it holds.
pub(crate) fn worker(view: &WorkerView) -> v1::WorkerView {
    let holds = view
        .holds
        .iter()
        .map(|(job, queue, kind, leased_at)| v1::HeldJob {
            job: job.to_text().into_owned(),
            queue: queue.to_text().into_owned(),
            kind: kind.to_text().into_owned(),
            leased_at_us: leased_at.0,
        });
    v1::WorkerView {
        worker: view.worker.to_text().into_owned(),
        seen_at_us: view.seen_at.0,
        holds: holds.collect(),
    }
}

/// An announcement of this shard.
pub(crate) fn event(shard: &ShardId, event: Event) -> v1::Event {
    v1::Event {
        position: event.position.0,
        at_us: event.at.0,
        happening: Some(happening(shard, event.happening)),
    }
}

fn happening(shard: &ShardId, happening: Happening) -> v1::event::Happening {
    use v1::event::Happening as Wire;
    match happening {
        Happening::JobMoved {
            key,
            job,
            queue,
            kind,
            from,
            to,
            attempt,
            worker,
            reason,
        } => Wire::JobMoved(v1::JobMoved {
            job: global(shard, &job),
            number: key.0,
            queue: queue.to_text().into_owned(),
            kind: kind.to_text().into_owned(),
            from: from.map_or(0, state),
            to: state(to),
            attempt,
            worker: text!(worker),
            reason,
        }),
        Happening::JobProgressed {
            key,
            job,
            progress: made,
        } => Wire::JobProgressed(v1::JobProgressed {
            job: global(shard, &job),
            number: key.0,
            progress: Some(made.into()),
        }),
        Happening::LogAppended {
            key,
            attempt,
            bytes,
        } => Wire::LogAppended(v1::LogAppended {
            number: key.0,
            attempt,
            bytes,
        }),
        Happening::JobRemoved { key, job, queue } => Wire::JobRemoved(v1::JobRemoved {
            job: global(shard, &job),
            number: key.0,
            queue: queue.to_text().into_owned(),
        }),
        Happening::QueueChanged { queue, paused } => Wire::QueueChanged(v1::QueueChanged {
            queue: queue.to_text().into_owned(),
            paused,
        }),
        Happening::ScheduleChanged { schedule } => Wire::ScheduleChanged(v1::ScheduleChanged {
            schedule: schedule.to_text().into_owned(),
        }),
        Happening::WorkerSeen { worker } => Wire::WorkerSeen(v1::WorkerSeen {
            worker: worker.to_text().into_owned(),
        }),
        Happening::WorkerGone { worker } => Wire::WorkerGone(v1::WorkerGone {
            worker: worker.to_text().into_owned(),
        }),
    }
}

/// Whether a job that was leased is leased no longer.
pub(crate) fn has_left(from: Option<JobState>, to: JobState) -> bool {
    from == Some(JobState::Running) && to != JobState::Running
}
