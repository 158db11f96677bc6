//! The pool's metrics, in the Prometheus text format.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ganger_metrics::{Distribution, Exposition};

use crate::outcome::TaskResult;
use crate::rate::Rate;

/// Upper bounds of the histogram, in microseconds: from an insert of one row to the limit of an attempt.
const BOUNDS: &[u64] = &[
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    5_000_000,
    20_000_000,
    60_000_000,
    180_000_000,
];
/// Value of an unknown queue size.
const UNKNOWN: u64 = u64::MAX;

/// Metrics of a pool, updated without locks.
#[derive(Debug)]
pub(crate) struct Metrics {
    workers: AtomicU64,
    rows: AtomicU64,
    tasks: [AtomicU64; TaskResult::ALL.len()],
    batches: AtomicU64,
    restarts: AtomicU64,
    queue_size: AtomicU64,
    /// Durations of attempts, from their lease to their report.
    durations: Distribution,
    rate: Mutex<Rate>,
}

impl Metrics {
    /// Creates the metrics of a pool with `workers` workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: AtomicU64::new(u64::try_from(workers).unwrap_or(u64::MAX)),
            rows: AtomicU64::default(),
            tasks: Default::default(),
            batches: AtomicU64::default(),
            restarts: AtomicU64::default(),
            queue_size: AtomicU64::new(UNKNOWN),
            durations: Distribution::times(BOUNDS),
            rate: Mutex::new(Rate::new(Instant::now())),
        }
    }

    /// Counts rows inserted into the database.
    pub(crate) fn count_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.rate().add(Instant::now(), rows);
    }

    /// Counts a task's result.
    pub(crate) fn count_task(&self, counted: TaskResult) {
        self.tasks[counted.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Records the duration of an attempt.
    pub(crate) fn observe_attempt(&self, duration: Duration) {
        self.durations.observe_time(duration);
    }

    /// Counts a batch given to a process.
    pub(crate) fn count_batch(&self) {
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a replaced process.
    pub(crate) fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the number of pending tasks; `None` if it is unknown.
    pub(crate) fn set_queue_size(&self, queue_size: Option<u64>) {
        self.queue_size
            .store(queue_size.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// Returns all metrics as text.
    pub(crate) fn text(&self) -> String {
        let mut out = Exposition::default();
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        out.gauge("ganger_ngsi_workers", "Workers of the pool.")
            .sample(&[], read(&self.workers));
        out.counter("ganger_ngsi_rows_total", "Rows inserted.")
            .sample(&[], read(&self.rows));
        let help = "Rows inserted a second, over the last ten seconds.";
        out.gauge("ganger_ngsi_rows_per_second", help)
            .sample(&[], self.rate().per_second(Instant::now()));
        let help = "Tasks, by how their attempts ended.";
        let mut tasks = out.counter("ganger_ngsi_tasks_total", help);
        for counted in TaskResult::ALL {
            let labels = [("outcome", counted.as_str())];
            tasks.sample(&labels, read(&self.tasks[counted.index()]));
        }
        let help = "From a task's fetch to the end of its report.";
        out.histogram("ganger_ngsi_attempt_seconds", help)
            .sample(&[], &self.durations.snapshot());
        let help = "Batches of tasks that shared a transaction, or tried to.";
        out.counter("ganger_ngsi_batches_total", help)
            .sample(&[], read(&self.batches));
        let help = "Processes that were replaced: dead, too large, or old.";
        out.counter("ganger_ngsi_children_restarted_total", help)
            .sample(&[], read(&self.restarts));
        let size = read(&self.queue_size);
        if size != UNKNOWN {
            out.gauge("ganger_ngsi_queue_size", "Pending tasks of the queue.")
                .sample(&[], size);
        }
        out.text()
    }

    fn rate(&self) -> MutexGuard<'_, Rate> {
        self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_events_are_in_the_text() {
        let metrics = Metrics::new(3);
        metrics.count_rows(5);
        metrics.count_rows(2);
        metrics.count_task(TaskResult::Inserted);
        metrics.count_task(TaskResult::Lost);
        metrics.count_task(TaskResult::Lost);
        metrics.count_batch();
        metrics.count_restart();
        let text = metrics.text();
        for wanted in [
            "ganger_ngsi_workers 3\n",
            "ganger_ngsi_rows_total 7\n",
            "ganger_ngsi_rows_per_second 0\n",
            "ganger_ngsi_tasks_total{outcome=\"inserted\"} 1\n",
            "ganger_ngsi_tasks_total{outcome=\"lost\"} 2\n",
            "ganger_ngsi_tasks_total{outcome=\"failed_for_good\"} 0\n",
            "ganger_ngsi_batches_total 1\n",
            "ganger_ngsi_children_restarted_total 1\n",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn an_unknown_queue_size_is_not_in_the_text() {
        let metrics = Metrics::new(1);
        assert!(!metrics.text().contains("queue_size"));
        metrics.set_queue_size(Some(0));
        assert!(metrics.text().contains("ganger_ngsi_queue_size 0\n"));
        metrics.set_queue_size(None);
        assert!(!metrics.text().contains("queue_size"));
    }

    #[test]
    fn the_histogram_is_cumulative_and_complete() {
        let metrics = Metrics::new(1);
        for milliseconds in [1, 3, 3, 1_000_000] {
            metrics.observe_attempt(Duration::from_millis(milliseconds));
        }
        let text = metrics.text();
        for wanted in [
            "attempt_seconds_bucket{le=\"0.001\"} 1\n",
            "attempt_seconds_bucket{le=\"0.002\"} 1\n",
            "attempt_seconds_bucket{le=\"0.005\"} 3\n",
            "attempt_seconds_bucket{le=\"180\"} 3\n",
            "attempt_seconds_bucket{le=\"+Inf\"} 4\n",
            "attempt_seconds_sum 1000.007\n",
            "attempt_seconds_count 4\n",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn the_text_is_valid() {
        assert_eq!(ganger_metrics::check(&Metrics::new(1).text()), Ok(()));
    }
}
