//! Statistics and workers: to messages from the shard's replies, and to the documents of HTTP and the SDK.

use ganger_document::view::statistics::{Bin, DurationSample, Statistics, day_text, deviation};
use ganger_document::view::worker::{HeldJob, Worker};
use ganger_types::observed::{ObservedWorker, WorkerFacts};
use ganger_types::{Day, Sample, StatisticsRecord};

use super::{At, FieldError, calendar, non_empty};
use crate::v1;

impl From<&StatisticsRecord> for v1::StatisticsReply {
    fn from(record: &StatisticsRecord) -> Self {
        Self {
            day: record.day.0,
            failed: record.failed,
            failures: record.failures,
            retries: record.retries,
            waiting: Some((&record.waiting).into()),
            running: Some((&record.running).into()),
        }
    }
}

impl From<&Sample> for v1::Sample {
    fn from(sample: &Sample) -> Self {
        let bin = |&(bin, count): &(u16, u64)| v1::Bin {
            bin: u32::from(bin),
            count,
        };
        Self {
            count: sample.count,
            mean_seconds: sample.mean,
            deviation_seconds: deviation(sample),
            histogram: sample.histogram.iter().map(bin).collect(),
        }
    }
}

/// The document of the statistics of a queue.
///
/// # Errors
/// If a histogram has a bin that this version does not know.
pub fn statistics(queue: &str, wire: v1::StatisticsReply) -> Result<Statistics, FieldError> {
    Ok(Statistics {
        queue: queue.to_owned(),
        day: day_text(Day(wire.day)),
        failed: wire.failed,
        failures: wire.failures,
        retries: wire.retries,
        waiting: sample(At::top("waiting"), wire.waiting.unwrap_or_default())?,
        running: sample(At::top("running"), wire.running.unwrap_or_default())?,
    })
}

fn sample(at: At<'_>, wire: v1::Sample) -> Result<DurationSample, FieldError> {
    let bin = |bin: v1::Bin| {
        let number = u16::try_from(bin.bin).map_err(|_| {
            let reason = format_args!("{} is not the number of a bin", bin.bin);
            FieldError::invalid(at.field("histogram"), reason)
        })?;
        Ok(Bin::new(number, bin.count))
    };
    Ok(DurationSample {
        count: wire.count,
        mean_seconds: wire.mean_seconds,
        deviation_seconds: wire.deviation_seconds,
        histogram: wire
            .histogram
            .into_iter()
            .map(bin)
            .collect::<Result<_, FieldError>>()?,
    })
}

impl From<&ObservedWorker> for v1::WorkerView {
    fn from(observed: &ObservedWorker) -> Self {
        let view = &observed.view;
        let holds = view.holds.iter();
        let holds = holds.map(|(job, queue, kind, leased_at)| v1::HeldJob {
            job: job.to_text().into_owned(),
            queue: queue.to_text().into_owned(),
            kind: kind.to_text().into_owned(),
            leased_at_us: leased_at.0,
        });
        Self {
            worker: view.worker.to_text().into_owned(),
            seen_at_us: view.seen_at.0,
            holds: holds.collect(),
            state: observed.state.as_str().to_owned(),
            facts: observed.facts.as_ref().map(Into::into),
            shard: String::new(),
        }
    }
}

impl From<&WorkerFacts> for v1::WorkerFacts {
    fn from(facts: &WorkerFacts) -> Self {
        let queues = facts.queues.iter();
        Self {
            address: facts.address.clone(),
            version: facts.version.clone(),
            queues: queues.map(|queue| queue.to_text().into_owned()).collect(),
            slots: facts.slots,
            since_us: facts.since.0,
            completed: facts.completed,
            failed: facts.failed,
            lost: facts.lost,
            free_slots: facts.free_slots,
            completed_per_minute: facts.completed_per_minute(),
        }
    }
}

impl From<v1::WorkerView> for Worker {
    fn from(wire: v1::WorkerView) -> Self {
        let holds = wire.holds.into_iter().map(|held| HeldJob {
            job: held.job,
            queue: held.queue,
            kind: held.kind,
            leased_at: calendar(held.leased_at_us),
        });
        let asked = wire.facts.as_ref();
        let (slots, free_slots) = (asked.map(|it| it.slots), asked.map(|it| it.free_slots));
        let since = asked.map(|it| calendar(it.since_us));
        let facts = wire.facts.unwrap_or_default();
        Self {
            worker: wire.worker,
            seen_at: calendar(wire.seen_at_us),
            holds: holds.collect(),
            state: wire.state,
            address: non_empty(facts.address),
            version: non_empty(facts.version),
            queues: facts.queues,
            slots,
            free_slots,
            since,
            completed: facts.completed,
            completed_per_minute: facts.completed_per_minute,
            failed: facts.failed,
            lost: facts.lost,
            shard: non_empty(wire.shard),
        }
    }
}
