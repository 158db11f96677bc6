//! The rate of events in the last seconds.

use std::time::Instant;

/// Number of whole seconds over which the rate is computed.
const SECONDS: usize = 10;

/// Counts of the last ten seconds and the current one.
#[derive(Debug)]
pub(crate) struct Rate {
    began_at: Instant,
    /// Number and count of each second, at the index of the number modulo the length.
    seconds: [(u64, u64); SECONDS + 1],
}

impl Rate {
    /// Creates a rate without events.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            began_at: now,
            seconds: [(0, 0); SECONDS + 1],
        }
    }

    /// Counts `count` events at `now`.
    pub(crate) fn add(&mut self, now: Instant, count: u64) {
        let second = self.second(now);
        let index = usize::try_from(second).unwrap_or_default() % self.seconds.len();
        let slot = &mut self.seconds[index];
        if slot.0 != second {
            *slot = (second, 0);
        }
        slot.1 += count;
    }

    /// Returns the mean per second over the last ten whole seconds, or over fewer after a recent start; 0 in the
    /// first second.
    pub(crate) fn per_second(&self, now: Instant) -> f64 {
        let present = self.second(now);
        let seconds = present.min(10);
        if seconds == 0 {
            return 0.0;
        }
        let is_recent = |second: u64| second < present && present - second <= 10;
        let sum: u64 = self
            .seconds
            .iter()
            .filter(|(second, _)| is_recent(*second))
            .map(|(_, count)| count)
            .sum();
        number(sum) / number(seconds)
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began_at).as_secs()
    }
}

fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn about(rate: f64, wanted: f64) {
        assert!((rate - wanted).abs() < 1e-9, "{rate} instead of {wanted}");
    }

    #[test]
    fn the_rate_is_the_mean_over_the_last_ten_whole_seconds() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut rate = Rate::new(start);
        about(rate.per_second(at(0)), 0.0);
        for second in 0..100 {
            rate.add(at(second), 7);
            rate.add(at(second), 3);
        }
        about(rate.per_second(at(100)), 10.0);
        about(rate.per_second(at(105)), 5.0);
        about(rate.per_second(at(110)), 0.0);
        about(rate.per_second(at(10_000)), 0.0);
    }

    #[test]
    fn a_recent_rate_is_the_mean_over_fewer_seconds() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        rate.add(start, 30);
        about(rate.per_second(start), 0.0);
        about(rate.per_second(start + Duration::from_secs(1)), 30.0);
        about(rate.per_second(start + Duration::from_secs(3)), 10.0);
    }
}
