//! Metrics of this dialect.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ganger_ngsi::job::QUEUE;
use ganger_types::QueueCounts;

use crate::api::Api;
use crate::authorization::Operation;
use crate::job::Status;

/// Upper bounds of the buckets of durations, in seconds.
const BOUNDS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0,
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
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    notifications: [AtomicU64; Outcome::ALL.len()],
    rows: AtomicU64,
    requests: [Durations; Operation::ALL.len()],
}

/// A histogram of durations.
#[derive(Debug, Default)]
struct Durations {
    /// Number of values by the first bound that is not exceeded; the last is beyond all of them.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Durations {
    fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound);
        self.buckets[bucket.unwrap_or(BOUNDS.len())].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

fn place<T: PartialEq>(all: &[T], one: &T) -> usize {
    let found = all.iter().position(|known| known == one);
    found.expect("all are there")
}

impl Metrics {
    /// Counts a notification by its outcome.
    pub(crate) fn notification(&self, outcome: Outcome) {
        self.notifications[place(&Outcome::ALL, &outcome)].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts rows inserted within requests.
    pub(crate) fn rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Counts a request and the time that it took.
    pub(crate) fn request(&self, operation: Operation, took: Duration) {
        self.requests[place(&Operation::ALL, &operation)].add(took);
    }

    /// Writes the metrics in the Prometheus text format.
    pub(crate) fn write(&self, out: &mut String) {
        let name = "ganger_quantumleap_notifications_total";
        head(
            out,
            name,
            "counter",
            "Notifications by what became of them.",
        );
        for (outcome, number) in Outcome::ALL.iter().zip(&self.notifications) {
            let number = number.load(Ordering::Relaxed);
            line(
                out,
                name,
                &format!("outcome=\"{}\"", outcome.as_str()),
                number,
            );
        }
        let name = "ganger_quantumleap_rows_inserted_total";
        head(out, name, "counter", "Rows inserted within requests.");
        let rows = self.rows.load(Ordering::Relaxed);
        writeln!(out, "{name} {rows}").expect("strings take everything");
        let name = "ganger_quantumleap_request_seconds";
        head(
            out,
            name,
            "histogram",
            "From a request to the head of its answer.",
        );
        for (operation, durations) in Operation::ALL.iter().zip(&self.requests) {
            histogram(out, name, operation.as_str(), durations);
        }
    }
}

/// Writes the tasks by status, as of the last snapshot of the queues.
pub(crate) fn write_tasks(api: &Api, out: &mut String) {
    let queues = api.shard().metrics().queues;
    let own = queues.iter().find(|(namespace, queue, ..)| {
        *namespace == api.settings().namespace && queue.as_bytes() == QUEUE.as_bytes()
    });
    let counts = own.map_or(QueueCounts::default(), |(_, _, counts, _)| *counts);
    let name = "ganger_quantumleap_tasks";
    head(out, name, "gauge", "Tasks by status.");
    for status in Status::ALL {
        let number: u64 = status.states().iter().map(|state| counts.of(state)).sum();
        line(
            out,
            name,
            &format!("status=\"{}\"", status.as_str()),
            number,
        );
    }
}

fn histogram(out: &mut String, name: &str, operation: &str, durations: &Durations) {
    let label = format!("operation=\"{operation}\"");
    let mut count = 0;
    let bounds = BOUNDS.iter().map(f64::to_string);
    let bounds = bounds.chain(["+Inf".to_owned()]);
    for (bound, bucket) in bounds.zip(&durations.buckets) {
        count += bucket.load(Ordering::Relaxed);
        let labels = format!("{label},le=\"{bound}\"");
        line(out, &format!("{name}_bucket"), &labels, count);
    }
    let sum = Duration::from_micros(durations.micros.load(Ordering::Relaxed)).as_secs_f64();
    writeln!(out, "{name}_sum{{{label}}} {sum}").expect("strings take everything");
    line(out, &format!("{name}_count"), &label, count);
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n").expect("strings take everything");
}

fn line(out: &mut String, name: &str, labels: &str, number: u64) {
    writeln!(out, "{name}{{{labels}}} {number}").expect("strings take everything");
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
        let mut out = String::new();
        counters.write(&mut out);
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
