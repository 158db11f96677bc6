//! Quantiles from the histograms of the server's statistics. Their bins are whole seconds, minutes, hours and days, so a
//! quantile is where its bin begins.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_document::view::statistics::Bin;
use ganger_types::Sample;

use crate::format::span;

/// Durations of several samples together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quantiles {
    pub(crate) count: u64,
    /// Seconds at which a bin begins, and the number of durations in it.
    bins: BTreeMap<u64, u64>,
    /// Sum of all durations, in seconds.
    sum: f64,
}

/// The quantiles of several samples together.
pub(crate) fn merged<'a>(samples: impl Iterator<Item = &'a Sample>) -> Quantiles {
    let mut all = Quantiles::default();
    for sample in samples {
        all.count += sample.count;
        // A count beyond 32 bits changes nothing that could be seen.
        all.sum += sample.mean * f64::from(u32::try_from(sample.count).unwrap_or(u32::MAX));
        for (bin, count) in &sample.histogram {
            *all.bins.entry(Bin::new(*bin, 0).from_seconds).or_default() += count;
        }
    }
    all
}

impl Quantiles {
    /// The bin of a quantile, in words.
    pub(crate) fn quantile(&self, share: f64) -> String {
        if self.count == 0 {
            return "\u{2013}".to_owned();
        }
        let of = |part: u64| f64::from(u32::try_from(part).unwrap_or(u32::MAX));
        let wanted = share * of(self.count);
        let mut seen = 0;
        for (from, count) in &self.bins {
            seen += count;
            if of(seen) >= wanted {
                return from_text(*from);
            }
        }
        "\u{2013}".to_owned()
    }

    /// The mean duration in words; a dash if there is no duration.
    pub(crate) fn mean(&self) -> String {
        if self.count == 0 {
            return "\u{2013}".to_owned();
        }
        let mean = self.sum / f64::from(u32::try_from(self.count).unwrap_or(u32::MAX));
        Duration::try_from_secs_f64(mean).map_or_else(|_| "\u{2013}".to_owned(), span)
    }

    /// Bins that double, from 0 and 1 s on, for a small drawing: each with its beginning in words.
    pub(crate) fn coarse(&self) -> Vec<(String, u64)> {
        let mut doubled: BTreeMap<u32, u64> = BTreeMap::new();
        for (from, count) in &self.bins {
            let bin = from.checked_ilog2().map_or(0, |power| power + 1);
            *doubled.entry(bin).or_default() += count;
        }
        let last = doubled.keys().last().copied().unwrap_or(0);
        (0..=last)
            .map(|bin| {
                let from = if bin == 0 { 0 } else { 1_u64 << (bin - 1) };
                (from_text(from), doubled.get(&bin).copied().unwrap_or(0))
            })
            .collect()
    }
}

fn from_text(seconds: u64) -> String {
    if seconds == 0 {
        "below 1 s".to_owned()
    } else {
        span(Duration::from_secs(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_where_their_bins_begin() {
        let sample = Sample {
            count: 100,
            mean: 2.5,
            vk: 0.0,
            histogram: vec![(0, 60), (3, 35), (61, 5)],
        };
        let all = merged([&sample, &sample].into_iter());
        assert_eq!(all.count, 200);
        assert_eq!(all.quantile(0.5), "below 1 s");
        assert_eq!(all.quantile(0.95), "3.0 s");
        assert_eq!(all.quantile(0.99), "2 min");
        assert_eq!(all.mean(), "2.5 s");
        let counts: Vec<u64> = all.coarse().iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [120, 0, 70, 0, 0, 0, 0, 10]);
    }
}
