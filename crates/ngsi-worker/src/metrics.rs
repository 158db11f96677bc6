//! The pool's metrics, in the Prometheus text format.

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::outcome::TaskResult;
use crate::rate::Rate;

/// Upper bounds of the histogram, in milliseconds: from an insert of one row to the limit of an attempt.
const BOUNDS_MS: [u64; 14] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 20_000, 60_000, 180_000,
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
    /// Number of attempts by duration, not cumulative; the last entry is for those above all bounds.
    durations: [AtomicU64; BOUNDS_MS.len() + 1],
    microseconds: AtomicU64,
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
            durations: Default::default(),
            microseconds: AtomicU64::default(),
            rate: Mutex::new(Rate::new(Instant::now())),
        }
    }

    /// Counts rows inserted into the database.
    pub(crate) fn inserted(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.rate().add(Instant::now(), rows);
    }

    /// Counts a task's result.
    pub(crate) fn ended(&self, counted: TaskResult) {
        self.tasks[counted.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Records the duration of an attempt.
    pub(crate) fn took(&self, duration: Duration) {
        let bound = BOUNDS_MS
            .iter()
            .position(|bound| duration <= Duration::from_millis(*bound));
        self.durations[bound.unwrap_or(BOUNDS_MS.len())].fetch_add(1, Ordering::Relaxed);
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }

    /// Counts a batch given to a process.
    pub(crate) fn began_batch(&self) {
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a replaced process.
    pub(crate) fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the number of pending tasks; `None` if it is unknown.
    pub(crate) fn sampled(&self, queue_size: Option<u64>) {
        self.queue_size
            .store(queue_size.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// Returns all metrics as text.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        one(
            &mut out,
            "workers",
            "gauge",
            "Workers of the pool.",
            read(&self.workers),
        );
        one(
            &mut out,
            "rows_total",
            "counter",
            "Rows inserted.",
            read(&self.rows),
        );
        let rate = self.rate().per_second(Instant::now());
        let help = "Rows inserted a second, over the last ten seconds.";
        one(&mut out, "rows_per_second", "gauge", help, rate);
        head(
            &mut out,
            "tasks_total",
            "counter",
            "Tasks, by how their attempts ended.",
        );
        for counted in TaskResult::ALL {
            let (outcome, count) = (counted.as_str(), read(&self.tasks[counted.index()]));
            line(
                &mut out,
                &format!("tasks_total{{outcome=\"{outcome}\"}}"),
                count,
            );
        }
        self.histogram(&mut out);
        let help = "Batches of tasks that shared a transaction, or tried to.";
        one(
            &mut out,
            "batches_total",
            "counter",
            help,
            read(&self.batches),
        );
        let help = "Processes that were replaced: dead, too large, or old.";
        one(
            &mut out,
            "children_restarted_total",
            "counter",
            help,
            read(&self.restarts),
        );
        let size = read(&self.queue_size);
        if size != UNKNOWN {
            one(
                &mut out,
                "queue_size",
                "gauge",
                "Pending tasks of the queue.",
                size,
            );
        }
        out
    }

    fn histogram(&self, out: &mut String) {
        head(
            out,
            "attempt_seconds",
            "histogram",
            "From a task's fetch to the end of its report.",
        );
        let mut count = 0;
        for (index, own) in self.durations.iter().enumerate() {
            count += own.load(Ordering::Relaxed);
            let bound = BOUNDS_MS.get(index).map_or_else(
                || "+Inf".to_owned(),
                |bound| Duration::from_millis(*bound).as_secs_f64().to_string(),
            );
            line(
                out,
                &format!("attempt_seconds_bucket{{le=\"{bound}\"}}"),
                count,
            );
        }
        let sum = Duration::from_micros(self.microseconds.load(Ordering::Relaxed));
        line(out, "attempt_seconds_sum", sum.as_secs_f64());
        line(out, "attempt_seconds_count", count);
    }

    fn rate(&self) -> MutexGuard<'_, Rate> {
        self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn one(out: &mut String, name: &str, kind: &str, help: &str, value: impl Display) {
    head(out, name, kind, help);
    line(out, name, value);
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    write!(
        out,
        "# HELP ganger_ngsi_{name} {help}\n# TYPE ganger_ngsi_{name} {kind}\n"
    )
    .expect("strings take everything");
}

fn line(out: &mut String, name: &str, value: impl Display) {
    writeln!(out, "ganger_ngsi_{name} {value}").expect("strings take everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_told() {
        let metrics = Metrics::new(3);
        metrics.inserted(5);
        metrics.inserted(2);
        metrics.ended(TaskResult::Inserted);
        metrics.ended(TaskResult::Lost);
        metrics.ended(TaskResult::Lost);
        metrics.began_batch();
        metrics.restarted();
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
    fn a_queue_that_nobody_could_ask_about_has_no_size() {
        let metrics = Metrics::new(1);
        assert!(!metrics.text().contains("queue_size"));
        metrics.sampled(Some(0));
        assert!(metrics.text().contains("ganger_ngsi_queue_size 0\n"));
        metrics.sampled(None);
        assert!(!metrics.text().contains("queue_size"));
    }

    #[test]
    fn the_histogram_is_cumulative_and_holds_everything() {
        let metrics = Metrics::new(1);
        for milliseconds in [1, 3, 3, 1_000_000] {
            metrics.took(Duration::from_millis(milliseconds));
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
    fn every_series_has_its_help_and_its_type_once() {
        let text = Metrics::new(1).text();
        let mut types: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("# TYPE"))
            .collect();
        let count = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), count, "{text}");
        assert_eq!(
            text.lines()
                .filter(|line| line.starts_with("# HELP"))
                .count(),
            count
        );
    }
}
