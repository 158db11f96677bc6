//! Metrics of this dialect.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ganger_metrics::{Distribution, Exposition};
use ganger_ngsi::job::QUEUE;
use ganger_types::QueueCounts;

use crate::api::Api;
use crate::authorization::Operation;
use crate::job::Status;

/// Upper bounds of the buckets of durations, in microseconds.
const BOUNDS: &[u64] = &[
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// The outcome of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Accepted: the notification is in the queue.
    Accepted,
    /// Inserted: its rows are in the database.
    Inserted,
    /// Refused: the sender's fault.
    Refused,
    /// Failed: not the sender's fault.
    Failed,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Accepted, Self::Inserted, Self::Refused, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Inserted => "inserted",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Metrics since the server's start.
#[derive(Debug)]
pub(crate) struct Metrics {
    notifications: [AtomicU64; Outcome::ALL.len()],
    rows: AtomicU64,
    /// Durations of requests, by operation.
    requests: [Distribution; Operation::ALL.len()],
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            notifications: Default::default(),
            rows: AtomicU64::default(),
            requests: std::array::from_fn(|_| Distribution::times(BOUNDS)),
        }
    }
}

fn index_of<T: PartialEq>(all: &[T], one: &T) -> usize {
    let found = all.iter().position(|known| known == one);
    found.expect("all are there")
}

impl Metrics {
    /// Counts a notification by its outcome.
    pub(crate) fn notification(&self, outcome: Outcome) {
        self.notifications[index_of(&Outcome::ALL, &outcome)].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts rows inserted within requests.
    pub(crate) fn rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Counts a request and the time that it took.
    pub(crate) fn request(&self, operation: Operation, took: Duration) {
        self.requests[index_of(&Operation::ALL, &operation)].observe_time(took);
    }

    /// Adds the metrics to those of the process.
    pub(crate) fn add_to(&self, out: &mut Exposition) {
        let help = "Notifications by what became of them.";
        let mut family = out.counter("ganger_quantumleap_notifications_total", help);
        for (outcome, number) in Outcome::ALL.iter().zip(&self.notifications) {
            let number = number.load(Ordering::Relaxed);
            family.sample(&[("outcome", outcome.as_str())], number);
        }
        let help = "Rows inserted within requests.";
        out.counter("ganger_quantumleap_rows_inserted_total", help)
            .sample(&[], self.rows.load(Ordering::Relaxed));
        let help = "From a request to the head of its answer.";
        let mut family = out.histogram("ganger_quantumleap_request_seconds", help);
        for (operation, durations) in Operation::ALL.iter().zip(&self.requests) {
            family.sample(&[("operation", operation.as_str())], &durations.snapshot());
        }
    }
}

/// Adds the number of tasks by status, as of the last snapshot of the queues.
pub(crate) fn add_tasks(api: &Api, out: &mut Exposition) {
    let queues = api.shard().metrics().queues;
    let own = queues.iter().find(|(namespace, queue, ..)| {
        *namespace == api.settings().namespace && queue.as_bytes() == QUEUE.as_bytes()
    });
    let counts = own.map_or(QueueCounts::default(), |(_, _, counts, _)| *counts);
    let mut family = out.gauge("ganger_quantumleap_tasks", "Tasks by status.");
    for status in Status::ALL {
        let number: u64 = status.states().iter().map(|state| counts.of(state)).sum();
        family.sample(&[("status", status.as_str())], number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_cumulatively() {
        let counters = Metrics::default();
        for millis in [1, 3, 60_000] {
            counters.request(Operation::Notify, Duration::from_millis(millis));
        }
        let mut out = Exposition::default();
        counters.add_to(&mut out);
        let out = out.text();
        assert_eq!(ganger_metrics::check(&out), Ok(()));
        let name = "ganger_quantumleap_request_seconds";
        for wanted in [
            "_bucket{operation=\"notify\",le=\"0.001\"} 1",
            "_bucket{operation=\"notify\",le=\"0.005\"} 2",
            "_bucket{operation=\"notify\",le=\"30\"} 2",
            "_bucket{operation=\"notify\",le=\"+Inf\"} 3",
            "_sum{operation=\"notify\"} 60.004",
            "_count{operation=\"notify\"} 3",
            "_count{operation=\"list\"} 0",
        ] {
            assert!(
                out.contains(&format!("{name}{wanted}\n")),
                "{wanted}: {out}"
            );
        }
    }
}
