//! Statistics, workers, events, the server.

use std::time::Duration;

use ganger_document::view::statistics::day_text;
use ganger_proto::v1;
use ganger_types::Day;

use super::{at, some, state, state_or_none};
use crate::error::Error;
use crate::model::{
    Bin, DurationSample, Event, EventFilter, Happening, HeldJob, JobMoved, ServerInfo, Statistics,
    TrackedJob, Worker,
};

/// Converts the statistics of a queue.
pub(crate) fn statistics(queue: &str, wire: v1::StatisticsReply) -> Result<Statistics, Error> {
    Ok(Statistics {
        queue: queue.to_owned(),
        day: day_text(Day(wire.day)),
        failed: wire.failed,
        failures: wire.failures,
        retries: wire.retries,
        waiting: sample(wire.waiting.unwrap_or_default())?,
        running: sample(wire.running.unwrap_or_default())?,
    })
}

fn sample(wire: v1::Sample) -> Result<DurationSample, Error> {
    let bin = |bin: v1::Bin| {
        let number = u16::try_from(bin.bin);
        let number = number.map_err(|_| Error::bad_reply("a histogram with an unknown bin"))?;
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
            .collect::<Result<_, Error>>()?,
    })
}

/// Converts a worker and the jobs that it holds.
pub(crate) fn worker(wire: v1::WorkerView) -> Worker {
    let holds = wire.holds.into_iter().map(|held| HeldJob {
        job: held.job,
        queue: held.queue,
        kind: held.kind,
        leased_at: at(held.leased_at_us),
    });
    Worker {
        worker: wire.worker,
        seen_at: at(wire.seen_at_us),
        holds: holds.collect(),
    }
}

impl TryFrom<v1::TrackedJob> for TrackedJob {
    type Error = Error;

    fn try_from(wire: v1::TrackedJob) -> Result<Self, Error> {
        Ok(Self {
            job: wire.job,
            since: at(wire.since_at_us),
            view: wire.view.map(super::job).transpose()?,
        })
    }
}

impl From<v1::InfoReply> for ServerInfo {
    fn from(wire: v1::InfoReply) -> Self {
        Self {
            version: wire.version,
            shard: wire.shard,
            health: wire.health,
            reason: wire.reason,
            uptime: Duration::from_millis(wire.uptime_ms),
            draining: wire.draining,
            live_jobs: wire.live_jobs,
        }
    }
}

impl EventFilter {
    pub(crate) fn to_wire(&self, namespace: &str) -> v1::EventsRequest {
        v1::EventsRequest {
            namespace: namespace.to_owned(),
            after: self.after,
            jobs: self.jobs.clone(),
            queues: self.queues.clone(),
            moves_only: self.moves_only,
        }
    }
}

impl TryFrom<v1::Event> for Event {
    type Error = Error;

    fn try_from(wire: v1::Event) -> Result<Self, Error> {
        let happening = wire
            .happening
            .ok_or_else(|| Error::bad_reply("an event of an unknown kind"))?;
        Ok(Self {
            position: wire.position,
            at: at(wire.at_us),
            happening: happening.try_into()?,
        })
    }
}

impl TryFrom<v1::event::Happening> for Happening {
    type Error = Error;

    fn try_from(wire: v1::event::Happening) -> Result<Self, Error> {
        use v1::event::Happening as Wire;
        Ok(match wire {
            Wire::JobMoved(moved) => Self::JobMoved(moved.try_into()?),
            Wire::JobProgressed(one) => Self::JobProgressed {
                job: one.job,
                number: one.number,
                progress: one.progress.unwrap_or_default().into(),
            },
            Wire::LogAppended(one) => Self::LogAppended {
                number: one.number,
                attempt: one.attempt,
                bytes: one.bytes,
            },
            Wire::JobRemoved(one) => Self::JobRemoved {
                job: one.job,
                number: one.number,
                queue: one.queue,
            },
            Wire::QueueChanged(one) => Self::QueueChanged {
                queue: one.queue,
                paused: one.paused,
            },
            Wire::ScheduleChanged(one) => Self::ScheduleChanged {
                schedule: one.schedule,
            },
            Wire::WorkerSeen(one) => Self::WorkerSeen { worker: one.worker },
            Wire::WorkerGone(one) => Self::WorkerGone { worker: one.worker },
        })
    }
}

impl TryFrom<v1::JobMoved> for JobMoved {
    type Error = Error;

    fn try_from(wire: v1::JobMoved) -> Result<Self, Error> {
        Ok(Self {
            job: wire.job,
            number: wire.number,
            queue: wire.queue,
            kind: wire.kind,
            from: state_or_none(wire.from)?,
            to: state(wire.to)?,
            attempt: wire.attempt,
            worker: some(wire.worker),
            reason: wire.reason,
        })
    }
}
