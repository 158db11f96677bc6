//! The worker's metrics, in the Prometheus text format.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ganger_metrics::Exposition;

use crate::Summary;

/// Metrics of a worker, which may be read while it runs.
#[derive(Debug, Default)]
pub struct Metrics {
    is_connected: AtomicBool,
    slots: AtomicU64,
    running: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    released: AtomicU64,
    dropped: AtomicU64,
    runs: AtomicU64,
    run_micros: AtomicU64,
}

impl Metrics {
    /// Sets whether the stream to the server is open.
    pub(crate) fn connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
    }

    /// Records the run time of a program.
    pub(crate) fn ran(&self, took: Duration) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.run_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Sets the current values: slots, jobs leased and not reported, and the summary.
    pub(crate) fn show(&self, slots: usize, running: usize, summary: &Summary) {
        let set = |number: &AtomicU64, value: u64| number.store(value, Ordering::Relaxed);
        set(&self.slots, u64::try_from(slots).unwrap_or(u64::MAX));
        set(&self.running, u64::try_from(running).unwrap_or(u64::MAX));
        set(&self.succeeded, summary.succeeded);
        set(&self.failed, summary.failed);
        set(&self.released, summary.released);
        set(&self.dropped, summary.dropped);
    }

    /// Returns all metrics as text.
    pub fn text(&self) -> String {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let mut out = Exposition::default();
        let is_connected = u64::from(self.is_connected.load(Ordering::Relaxed));
        for (name, help, value) in [
            (
                "ganger_worker_connected",
                "1 while the stream to the server is open.",
                is_connected,
            ),
            (
                "ganger_worker_slots",
                "Programs that may run at a time.",
                read(&self.slots),
            ),
            (
                "ganger_worker_jobs_held",
                "Jobs leased and not reported yet.",
                read(&self.running),
            ),
        ] {
            out.gauge(name, help).sample(&[], value);
        }
        let mut jobs = out.counter(
            "ganger_worker_jobs_total",
            "Jobs by reported outcome; dropped: the lease was lost.",
        );
        for (outcome, number) in [
            ("succeeded", &self.succeeded),
            ("failed", &self.failed),
            ("released", &self.released),
            ("dropped", &self.dropped),
        ] {
            jobs.sample(&[("outcome", outcome)], read(number));
        }
        let (runs, micros) = (read(&self.runs), read(&self.run_micros));
        let seconds = Duration::from_micros(micros).as_secs_f64();
        let help = "Run time of programs.";
        out.summary("ganger_worker_run_seconds", help, seconds, runs);
        out.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_exported() {
        let metrics = Metrics::default();
        metrics.connected(true);
        metrics.ran(Duration::from_millis(250));
        metrics.ran(Duration::from_millis(1_250));
        let summary = Summary {
            succeeded: 3,
            failed: 2,
            released: 1,
            ..Summary::default()
        };
        metrics.show(4, 2, &summary);
        let text = metrics.text();
        assert_eq!(ganger_metrics::check(&text), Ok(()));
        for line in [
            "ganger_worker_connected 1",
            "ganger_worker_slots 4",
            "ganger_worker_jobs_held 2",
            "ganger_worker_jobs_total{outcome=\"succeeded\"} 3",
            "ganger_worker_jobs_total{outcome=\"failed\"} 2",
            "ganger_worker_jobs_total{outcome=\"released\"} 1",
            "ganger_worker_jobs_total{outcome=\"dropped\"} 0",
            "ganger_worker_run_seconds_sum 1.5",
            "ganger_worker_run_seconds_count 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
    }
}
