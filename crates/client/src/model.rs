//! Plain structs of the SDK: what calls take and give. No wire type among them.
//!
//! Points in time are [`SystemTime`], durations [`Duration`], names text. `None` is said where it is
//! not simply "absent".

mod import;
mod insight;
mod job;
mod lease;
mod peer;
mod queue;
mod schedule;
mod view;

use std::time::Duration;

pub use import::*;
pub use insight::*;
pub use job::*;
pub use lease::*;
pub use peer::*;
pub use queue::*;
pub use schedule::*;
pub use view::*;

/// How long to wait before retry `k` (1, 2, 3 ...), counted from the end of the failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// The same pause before every retry.
    Fixed(Duration),
    /// The k-th entry; the last one repeats. Not empty.
    List(Vec<Duration>),
    /// `base * 2^(k-1)`, at most `cap`.
    Exponential {
        /// Before the first retry.
        base: Duration,
        /// Never longer than this.
        cap: Duration,
    },
}

impl Default for Backoff {
    /// From 20 s, doubling, up to an hour.
    fn default() -> Self {
        Self::Exponential {
            base: Duration::from_secs(20),
            cap: Duration::from_secs(3_600),
        }
    }
}

/// How often and when a job is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Retries after the first attempt.
    pub retries_max: u32,
    /// The pause before each.
    pub backoff: Backoff,
    /// Up to so many hundredths are added to or taken from each pause, 0 to 100.
    pub jitter_percent: u32,
    /// Leases that may run out (their worker was lost) without counting against the retries, in the whole life
    /// of the job; the next one fails it. `None`: each counts, and the namespace bounds them in a row.
    pub lease_expirations_max: Option<u32>,
}

impl Default for RetryPolicy {
    /// Three retries, [`Backoff::default`], no jitter.
    fn default() -> Self {
        Self {
            retries_max: 3,
            backoff: Backoff::default(),
            jitter_percent: 0,
            lease_expirations_max: None,
        }
    }
}

/// How long a finished job is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepFor {
    /// For this length of time.
    Time(Duration),
    /// Forever: retention never removes the job.
    Ever,
}
