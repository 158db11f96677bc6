//! Numbers about a shard, for people who look at its server.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ganger_store::DurabilityMode;

use crate::metrics::ShardMetrics;
use crate::{Handle, Health};

/// Shortest time over which the rate of commits is measured.
const RATE_OVER_MIN: Duration = Duration::from_secs(1);
/// The share of commits that [`ShardNumbers::commit_p99`] covers.
const P99: f64 = 0.99;

/// Numbers about a shard.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardNumbers {
    /// Health of the shard.
    pub health: Health,
    /// Time since the start of the shard.
    pub uptime: Duration,
    /// Number of jobs that have not ended.
    pub live_jobs: u64,
    /// Commits a second since the previous call, or since the start; of at least one second.
    pub commits_per_second: f64,
    /// Upper bound of the duration of 99 % of the commits since the start; `None` before the first commit, and if it is
    /// beyond all buckets.
    pub commit_p99: Option<Duration>,
    /// Size of the store's files in bytes; `None` if the store has none.
    pub store_bytes: Option<u64>,
    /// Free bytes on the store's device; `None` if that is unknown.
    pub free_bytes: Option<u64>,
    /// Bytes of the store's device that are held in reserve; 0 without a reserve.
    pub reserve_bytes: u64,
    /// What an acknowledged commit survives; `None` if the store is a file.
    pub durability: Option<DurabilityMode>,
}

/// The rate of commits: the last measurement, and its result.
#[derive(Debug)]
pub(crate) struct CommitRate {
    /// Monotonic time of the start of the shard.
    started: Duration,
    last: Mutex<Measured>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    at: Duration,
    commits: u64,
    rate: f64,
}

impl CommitRate {
    pub(crate) fn new(started: Duration) -> Self {
        let last = Measured {
            at: started,
            commits: 0,
            rate: 0.0,
        };
        Self {
            started,
            last: Mutex::new(last),
        }
    }

    /// The rate as of `now`, with so many commits since the start.
    fn measure(&self, now: Duration, commits: u64) -> f64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let over = now.saturating_sub(last.at);
        if over >= RATE_OVER_MIN {
            let more = commits.saturating_sub(last.commits);
            let more = u32::try_from(more).map_or(f64::MAX, f64::from);
            *last = Measured {
                at: now,
                commits,
                rate: more / over.as_secs_f64(),
            };
        }
        last.rate
    }
}

impl Handle {
    /// Returns numbers about the shard as it is now.
    pub fn numbers(&self) -> ShardNumbers {
        let metrics: &ShardMetrics = &self.shared.metrics;
        let gauges = &metrics.gauges;
        let now = self.shared.clock.monotonic();
        let rate = &self.shared.commit_rate;
        let p99 = metrics.commit.snapshot().quantile(P99);
        let known = |bytes: u64| Some(bytes).filter(|bytes| *bytes > 0);
        ShardNumbers {
            health: self.health(),
            uptime: now.saturating_sub(rate.started),
            live_jobs: gauges.live_jobs.get(),
            commits_per_second: rate.measure(now, metrics.counters.commits_total.get()),
            commit_p99: p99.and_then(|p99| Duration::try_from_secs_f64(p99).ok()),
            store_bytes: known(gauges.store_bytes.get()),
            free_bytes: known(gauges.store_free_bytes.get()),
            reserve_bytes: gauges.store_reserve_bytes.get(),
            durability: DurabilityMode::of_number(gauges.store_durability.get()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_since_the_last_look_of_at_least_a_second() {
        let secs = Duration::from_secs;
        let rate = CommitRate::new(secs(10));
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found}");
        close(rate.measure(secs(10), 5), 0.0);
        close(rate.measure(secs(12), 10), 5.0);
        close(rate.measure(secs(12), 90), 5.0);
        close(rate.measure(secs(22), 110), 10.0);
    }
}
