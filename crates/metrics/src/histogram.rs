//! Histograms: distributions that threads count into, and their counts at one moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Microseconds in a second, the unit of the bounds of times.
const MICROS_PER_SECOND: u64 = 1_000_000;

/// A histogram at one moment, with cumulative buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Upper bound of each bucket, finite and rising, with the number of values at or below it.
    pub buckets: Vec<(f64, u64)>,
    /// Sum of all values.
    pub sum: f64,
    /// Number of all values, also of those above the last bound.
    pub count: u64,
}

impl Histogram {
    /// The bound below or at which this share of the values lies, from 0 to 1; `None` without values, and if it is
    /// above the last bound.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = share * ratio(self.count, 1);
        let mut buckets = self.buckets.iter();
        let found = buckets.find(|(_, count)| *count > 0 && ratio(*count, 1) >= wanted);
        found.map(|(bound, _)| *bound)
    }
}

/// A distribution of values, in whole units, that threads share without locks.
#[derive(Debug)]
pub struct Distribution {
    bounds: &'static [u64],
    units_per_one: u64,
    /// Number of values by the first bound that they do not exceed; the last is for those above all bounds.
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Distribution {
    /// Creates an empty distribution of times, shown in seconds. The bounds of its buckets are rising microseconds.
    pub fn times(bounds: &'static [u64]) -> Self {
        Self::new(bounds, MICROS_PER_SECOND)
    }

    /// Creates an empty distribution of numbers. The bounds of its buckets rise.
    pub fn numbers(bounds: &'static [u64]) -> Self {
        Self::new(bounds, 1)
    }

    fn new(bounds: &'static [u64], units_per_one: u64) -> Self {
        Self {
            bounds,
            units_per_one,
            counts: (0..=bounds.len()).map(|_| AtomicU64::default()).collect(),
            sum: AtomicU64::default(),
        }
    }

    /// Counts a number as one value.
    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts a duration as one value, in whole microseconds.
    pub fn observe_time(&self, value: Duration) {
        self.observe(u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns the counts so far.
    pub fn snapshot(&self) -> Histogram {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (index, own) in self.counts.iter().enumerate() {
            count += own.load(Ordering::Relaxed);
            if let Some(bound) = self.bounds.get(index) {
                buckets.push((ratio(*bound, self.units_per_one), count));
            }
        }
        Histogram {
            buckets,
            sum: ratio(self.sum.load(Ordering::Relaxed), self.units_per_one),
            count,
        }
    }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "values of metrics are floating-point numbers; 2^53 microseconds are 285 years"
)]
pub(crate) fn ratio(value: u64, units_per_one: u64) -> f64 {
    value as f64 / units_per_one as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_count_holds_what_exceeds_all_bounds() {
        let times = Distribution::times(&[50, 1_000, 2_500]);
        times.observe_time(Duration::from_micros(50));
        times.observe_time(Duration::from_millis(2));
        times.observe_time(Duration::from_secs(7_200));
        let shown = times.snapshot();
        assert_eq!(shown.buckets, [(0.000_05, 1), (0.001, 1), (0.002_5, 2)]);
        assert_eq!(shown.count, 3);
        assert!((shown.sum - 7_200.002_05).abs() < 1e-9);
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let sizes = Distribution::numbers(&[1, 2, 4]);
        assert_eq!(sizes.snapshot().quantile(0.99), None);
        for value in [1, 1, 1, 2] {
            sizes.observe(value);
        }
        assert_eq!(sizes.snapshot().quantile(0.5), Some(1.0));
        assert_eq!(sizes.snapshot().quantile(0.99), Some(2.0));
        sizes.observe(9);
        assert_eq!(sizes.snapshot().quantile(0.99), None);
    }

    #[test]
    fn numbers_are_shown_as_they_are() {
        let sizes = Distribution::numbers(&[1, 2]);
        sizes.observe(2);
        let shown = sizes.snapshot();
        assert_eq!(shown.buckets, [(1.0, 0), (2.0, 1)]);
        assert_eq!(shown.count, 1);
    }
}
