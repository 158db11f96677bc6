//! Queues, workers and schedules with what the shard has seen of them.

use std::time::Duration;

use ganger_types::observed::{
    Asker, ObservedQueue, ObservedSchedule, ObservedWorker, QueuePace, WorkerState,
};
use ganger_types::reply::{QueueView, WorkerView};
use ganger_types::{HistoryEntry, Namespace, Queue, ScheduleRecord, Timestamp, What};

use super::Handle;

/// Lengths of its leases without a request after which a worker is silent.
const SILENT_LEASES: u32 = 3;

impl Handle {
    /// Adds to a queue of a list how fast it fills and empties, unless this process may not own the shard any more.
    pub fn observe_queue(&self, namespace: &Namespace, view: QueueView) -> ObservedQueue {
        let now = self.wall_time();
        let rate = self.series(|table| table.rate(namespace, &view.queue, now));
        let rate = rate.ok().flatten();
        // Rates are far below the numbers that a fraction cannot hold exactly.
        let per_minute = |tenths: u64| f64::from(u32::try_from(tenths).unwrap_or(u32::MAX)) / 10.0;
        let pace = rate.map(|rate| QueuePace {
            arrivals_per_minute: per_minute(rate.arrivals_in_tenths()),
            completions_per_minute: per_minute(rate.completions_in_tenths()),
            time_to_empty: rate.time_to_empty(view.counts.ready),
        });
        ObservedQueue {
            view,
            pace,
            askers: None,
        }
    }

    /// Adds to a queue that is shown by itself how fast it fills and empties, and who asks it for jobs.
    pub fn observe_queue_closely(&self, namespace: &Namespace, view: QueueView) -> ObservedQueue {
        let askers = self.askers(namespace, &view.queue);
        ObservedQueue {
            askers: Some(askers),
            ..self.observe_queue(namespace, view)
        }
    }

    /// Returns the workers that ask a queue for jobs, or did within the last minute, at most 100, by name.
    fn askers(&self, namespace: &Namespace, queue: &Queue) -> Vec<Asker> {
        let now = self.wall_time();
        self.shared.metrics.workers().askers(namespace, queue, now)
    }

    /// Adds to a worker what it does now, and what is known of it since the start.
    pub fn observe_worker(&self, namespace: &Namespace, view: WorkerView) -> ObservedWorker {
        let now = self.wall_time();
        let state = worker_state(&view, now);
        let workers = self.shared.metrics.workers();
        let facts = workers.get(namespace, &view.worker, now);
        ObservedWorker { view, state, facts }
    }

    /// Adds to a schedule the state of its last job. A job that is gone or cannot be read is left out.
    pub async fn observe_schedule(&self, record: ScheduleRecord) -> ObservedSchedule {
        let last = match &record.last_job {
            Some(job) => self.job(&record.namespace, job).await.ok().flatten(),
            None => None,
        };
        ObservedSchedule {
            last_state: last.as_ref().map(|last| last.record.state),
            last_ran_for: last.and_then(|last| last_run(&last.record.history)),
            record,
        }
    }
}

/// Returns what a worker does at the time `now`.
pub fn worker_state(view: &WorkerView, now: Timestamp) -> WorkerState {
    if now.since(view.seen_at) > view.lease_for.saturating_mul(SILENT_LEASES) {
        WorkerState::Silent
    } else if view.holds.is_empty() {
        WorkerState::Idle
    } else {
        WorkerState::Busy
    }
}

/// How long the last attempt ran; `None` if none has ended.
fn last_run(history: &[HistoryEntry]) -> Option<Duration> {
    history.iter().rev().find_map(|entry| match &entry.what {
        What::Attempt { leased_at, .. } => Some(entry.at.since(*leased_at)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use ganger_types::Worker;

    use super::*;

    #[test]
    fn a_worker_is_silent_after_three_of_its_own_leases() {
        let second = |number: u64| Timestamp(number * 1_000_000);
        let view = |lease_for| WorkerView {
            worker: Worker::from_static("w"),
            seen_at: second(1_000),
            lease_for: Duration::from_secs(lease_for),
            holds: Vec::new(),
        };
        for (lease_for, age, state) in [
            (60, 180, WorkerState::Idle),
            (60, 181, WorkerState::Silent),
            (5, 16, WorkerState::Silent),
            (600, 1_800, WorkerState::Idle),
            (600, 1_801, WorkerState::Silent),
        ] {
            let found = worker_state(&view(lease_for), second(1_000 + age));
            assert_eq!(found, state, "{age} s after a request for {lease_for} s");
        }
    }
}
