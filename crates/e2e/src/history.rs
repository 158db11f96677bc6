//! What the clients of a run saw: each request with the moments of its sending and of its answer, on one clock.
//!
//! The history alone is enough to judge a run; see [`crate::checker`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time since the run began.
pub type Elapsed = Duration;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// To enqueue jobs under these ids: all or none.
    Enqueue {
        /// The ids, chosen by the client.
        jobs: Vec<String>,
    },
    /// To be handed jobs.
    Lease {
        /// Name of the worker that asks.
        worker: String,
        /// Length of the leases asked for.
        lease_for: Duration,
    },
    /// To extend a lease.
    Renew {
        /// Attempt whose lease to extend.
        lease: Lease,
    },
    /// To end an attempt well.
    Complete {
        /// Attempt that ends with success.
        lease: Lease,
        /// Result of the job, as text.
        result: String,
    },
    /// To end an attempt badly.
    Fail {
        /// Attempt that ends with a failure.
        lease: Lease,
    },
    /// To give a job back.
    Release {
        /// Attempt that is given back.
        lease: Lease,
    },
}

/// An attempt, as its worker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Id of the job.
    pub job: String,
    /// The number of the attempt.
    pub attempt: u32,
    /// Token that proves the lease.
    pub token: String,
}

/// Answer of the server, as the client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server did what was asked.
    Done {
        /// Whether the server said that it had been done before.
        is_repeat: bool,
    },
    /// These were handed out.
    Leased(Vec<Lease>),
    /// It was refused, with this code.
    Refused(String),
    /// The request was never sent: nothing happened.
    NotSent,
    /// No answer: it happened entirely or not at all.
    Unknown,
}

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Before it was sent.
    pub sent_at: Elapsed,
    /// After the answer was there, or was given up.
    pub answered_at: Elapsed,
    /// Request that was sent.
    pub operation: Operation,
    /// Answer to the request.
    pub outcome: Outcome,
}

/// A job as it was found at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalJob {
    /// Id of the job.
    pub job: String,
    /// State of the job.
    pub state: String,
    /// Number of its last attempt.
    pub attempt: u32,
    /// Its result, as text.
    pub result: Option<String>,
    /// The numbers of the attempts that its history lists, in order.
    pub attempts: Vec<u32>,
}

/// Everything that was seen in a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In order of sending.
    pub exchanges: Vec<Exchange>,
    /// What there is at the end.
    pub found: Vec<FinalJob>,
}

/// Records exchanges from many threads.
#[derive(Clone, Debug)]
pub struct Recorder {
    begun: Instant,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
    /// Even while there is power; counts its goings and comings.
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
    /// The time on the clock of the run.
    pub fn now(&self) -> Elapsed {
        self.begun.elapsed()
    }

    /// From now on the server is to be taken for dead, though its process may still speak: no answer comes from a
    /// machine without power. The system shuts a file system down while flushes are on their way, and one that it cut
    /// off may still be told as done.
    pub fn power_off(&self) {
        self.power.fetch_add(1, Ordering::SeqCst);
    }

    /// Answers to requests that are sent from here on count again.
    pub fn power_on(&self) {
        self.power.fetch_add(1, Ordering::SeqCst);
    }

    /// Does a request and notes it with its answer.
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

    /// A recorder with what was recorded so far, on the same clock, that goes its own way from here.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            begun: self.begun,
            exchanges: Arc::new(Mutex::new(self.exchanges())),
            power: Arc::default(),
        }
    }

    /// What was recorded so far, in order of sending.
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
