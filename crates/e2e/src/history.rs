//! The history of a run: each request of its clients, with the times of sending and of the answer, on one clock.
//!
//! [`crate::checker`] checks a run from its history alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time since the start of the run.
pub type Elapsed = Duration;

/// An operation that a client requested, with what the checks need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Enqueues jobs with these ids: all or none.
    Enqueue {
        /// Ids of the jobs, chosen by the client.
        jobs: Vec<String>,
    },
    /// Submits a graph: all of its jobs or none.
    Submit {
        /// The jobs, in any order.
        jobs: Vec<GraphJob>,
    },
    /// Leases jobs from a queue.
    Lease {
        /// Name of the worker.
        worker: String,
        /// Requested length of the leases.
        lease_for: Duration,
    },
    /// Renews the lease of a job.
    Renew {
        /// The lease to renew.
        lease: Lease,
    },
    /// Completes the attempt of a job.
    Complete {
        /// The lease of the attempt that succeeded.
        lease: Lease,
        /// Result of the job, as text.
        result: String,
    },
    /// Fails the attempt of a job.
    Fail {
        /// The lease of the attempt that failed.
        lease: Lease,
    },
    /// Releases a leased job, which runs again later.
    Release {
        /// The lease that is given back.
        lease: Lease,
    },
}

impl Operation {
    /// Returns the ids of the jobs that it creates.
    pub fn created(&self) -> Vec<&str> {
        match self {
            Self::Enqueue { jobs } => jobs.iter().map(String::as_str).collect(),
            Self::Submit { jobs } => jobs.iter().map(|job| job.id.as_str()).collect(),
            _ => Vec::new(),
        }
    }
}

/// A job of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphJob {
    /// Id of the job, chosen by the client.
    pub id: String,
    /// Ids of the jobs whose results are its inputs, in order. It runs when they have succeeded.
    pub inputs: Vec<String>,
}

/// A lease, as its worker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Id of the job.
    pub job: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Token that proves the lease.
    pub token: String,
    /// Values of the inputs that came with it, as text.
    pub inputs: Vec<String>,
}

/// The outcome of an operation, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server did the operation.
    Done {
        /// Whether the server reported that it had done it before.
        is_repeat: bool,
    },
    /// The server leased these jobs.
    Leased(Vec<Lease>),
    /// The server refused the operation with this code.
    Refused(String),
    /// The request was never sent, so nothing happened.
    NotSent,
    /// There was no answer: the operation happened entirely or not at all.
    Unknown,
}

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Time before the request was sent.
    pub sent_at: Elapsed,
    /// Time after the answer arrived or was given up.
    pub answered_at: Elapsed,
    /// The operation that the client requested.
    pub operation: Operation,
    /// The outcome, as far as the client knows it.
    pub outcome: Outcome,
}

/// A job at the end of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalJob {
    /// Id of the job.
    pub job: String,
    /// State of the job.
    pub state: String,
    /// Number of the last attempt; 0 if there was none.
    pub attempt: u32,
    /// Result of the job, as text; `None` unless it succeeded with one.
    pub result: Option<String>,
    /// Numbers of the attempts in the job's history, in order.
    pub attempts: Vec<u32>,
}

/// Everything that clients observed in a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All exchanges, in order of sending.
    pub exchanges: Vec<Exchange>,
    /// The jobs at the end of the run.
    pub found: Vec<FinalJob>,
}

/// Returns the longest time in which nothing happened, from the one time to the other. `times` is when something did, in
/// any order.
pub fn longest_gap(
    times: impl IntoIterator<Item = Elapsed>,
    from: Elapsed,
    to: Elapsed,
) -> Duration {
    let inside = times.into_iter().filter(|at| (from..=to).contains(at));
    let mut times: Vec<Elapsed> = inside.chain([from, to]).collect();
    times.sort();
    let gaps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    gaps.max().unwrap_or_default()
}

/// Records exchanges from many threads.
#[derive(Clone, Debug)]
pub struct Recorder {
    begun: Instant,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
    /// Number of times that the power was switched; even while it is on.
    power: Arc<AtomicU64>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            exchanges: Arc::default(),
            power: Arc::default(),
        }
    }
}

impl Recorder {
    /// Returns the time since the start of the run.
    pub fn now(&self) -> Elapsed {
        self.begun.elapsed()
    }

    /// Discards answers from now on, although the server's process may still send some: a machine without power sends no
    /// answers. While the file system is shut down, a flush that was cut off may still be reported as done.
    pub fn power_off(&self) {
        self.power.fetch_add(1, Ordering::SeqCst);
    }

    /// Accepts answers to requests that are sent from now on.
    pub fn power_on(&self) {
        self.power.fetch_add(1, Ordering::SeqCst);
    }

    /// Runs a request and records it with its outcome.
    pub fn exchange(&self, operation: Operation, request: impl FnOnce() -> Outcome) -> Outcome {
        let sent_at = self.now();
        let power = self.power.load(Ordering::SeqCst);
        let mut outcome = request();
        let had_power = power.is_multiple_of(2) && self.power.load(Ordering::SeqCst) == power;
        if !had_power && outcome != Outcome::NotSent {
            outcome = Outcome::Unknown;
        }
        let exchange = Exchange {
            sent_at,
            answered_at: self.now(),
            operation,
            outcome: outcome.clone(),
        };
        self.exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(exchange);
        outcome
    }

    /// Returns an independent recorder with the exchanges so far, on the same clock.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            begun: self.begun,
            exchanges: Arc::new(Mutex::new(self.exchanges())),
            power: Arc::default(),
        }
    }

    /// Returns the exchanges so far, in order of sending.
    pub fn exchanges(&self) -> Vec<Exchange> {
        let mut all = self
            .exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        all.sort_by_key(|exchange| exchange.sent_at);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_found_between_times_in_any_order_and_at_both_ends() {
        let at = Duration::from_millis;
        let gap = |times: &[u64]| longest_gap(times.iter().copied().map(at), at(100), at(200));
        assert_eq!(gap(&[150, 110, 120]), at(50));
        assert_eq!(gap(&[190, 170, 110]), at(60));
        assert_eq!(gap(&[160]), at(60));
        assert_eq!(gap(&[]), at(100));
        // Times before and after do not count.
        assert_eq!(gap(&[50, 130, 290]), at(70));
    }
}
