//! A sketch of durations: bins that grow by a quarter of an octave, so that quantiles are known within 10 %.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bins of an octave.
const BINS_PER_OCTAVE: f64 = 4.0;
/// End of the first bin, in seconds; shorter durations are not told apart.
const FIRST_SECONDS: f64 = 0.001;
/// Number of the last bin, which holds everything from 49 days on.
const LAST: u8 = 128;

/// How many durations were in which bin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sketch {
    /// Bins that are not empty, shortest first, with their numbers of durations.
    bins: Vec<(u8, u32)>,
}

/// The bin of a duration: 0 below a millisecond.
fn bin(duration: Duration) -> u8 {
    if duration.as_millis() == 0 {
        return 0;
    }
    let octaves = (duration.as_secs_f64() / FIRST_SECONDS).log2();
    if octaves < 0.0 {
        return 0;
    }
    let bins = (octaves * BINS_PER_OCTAVE).floor();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::as_conversions,
        reason = "it is from 0 to 127"
    )]
    let bin = bins.min(f64::from(LAST - 1)) as u8;
    bin + 1
}

/// Where a bin begins, in seconds.
fn start(bin: u8) -> f64 {
    if bin == 0 {
        return 0.0;
    }
    FIRST_SECONDS * (f64::from(bin - 1) / BINS_PER_OCTAVE).exp2()
}

impl Sketch {
    /// Adds one duration of any length.
    pub(super) fn add(&mut self, duration: Duration) {
        self.add_to(bin(duration), 1);
    }

    fn add_to(&mut self, bin: u8, count: u32) {
        match self.bins.binary_search_by_key(&bin, |known| known.0) {
            Ok(place) => self.bins[place].1 = self.bins[place].1.saturating_add(count),
            Err(place) => self.bins.insert(place, (bin, count)),
        }
    }

    /// Adds all durations of another sketch.
    pub fn merge(&mut self, other: &Self) {
        for (bin, count) in &other.bins {
            self.add_to(*bin, *count);
        }
    }

    pub(super) fn heap(&self) -> usize {
        self.bins.capacity() * size_of::<(u8, u32)>()
    }

    /// Number of durations in all bins.
    pub fn count(&self) -> u64 {
        self.bins.iter().map(|bin| u64::from(bin.1)).sum()
    }

    /// Bins that are not empty: where each begins, in seconds, and its number of durations.
    pub fn bins(&self) -> impl Iterator<Item = (f64, u32)> {
        self.bins.iter().map(|(bin, count)| (start(*bin), *count))
    }

    /// The duration in seconds that a share of all durations does not exceed, within 10 %; below a millisecond it is
    /// a millisecond. `None` without durations. `share` is from 0 to 1.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::as_conversions,
            reason = "counts stay far below 2^52"
        )]
        let rank = (self.count() as f64 * share).ceil().max(1.0);
        let mut below = 0.0;
        for (bin, count) in &self.bins {
            below += f64::from(*count);
            if below >= rank {
                return Some(match bin {
                    0 => FIRST_SECONDS,
                    // The middle of the bin on the scale of its bounds.
                    _ => start(*bin) * (0.5 / BINS_PER_OCTAVE).exp2(),
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sketch_without_durations_has_no_quantile() {
        assert_eq!(Sketch::default().quantile(0.5), None);
        assert_eq!(Sketch::default().bins().count(), 0);
    }

    #[test]
    fn durations_of_any_length_have_a_bin() {
        let mut sketch = Sketch::default();
        for duration in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
            sketch.add(duration);
        }
        let starts: Vec<f64> = sketch.bins().map(|bin| bin.0).collect();
        assert_eq!(starts[..2], [0.0, 0.001]);
        assert_eq!(sketch.count(), 3);
    }

    proptest! {
        #[test]
        fn a_quantile_is_within_a_tenth(
            mut millis in prop::collection::vec(1_u64..100_000_000, 1..200),
            share in 0.0_f64..=1.0,
            split in 0_usize..200,
        ) {
            let (mut sketch, mut other) = (Sketch::default(), Sketch::default());
            for (place, one) in millis.iter().enumerate() {
                let target = if place < split { &mut sketch } else { &mut other };
                target.add(Duration::from_millis(*one));
            }
            sketch.merge(&other);
            millis.sort_unstable();
            let rank = (share * f64::from(u32::try_from(millis.len()).expect("few"))).ceil().max(1.0);
            let place = (1..=millis.len())
                .find(|place| f64::from(u32::try_from(*place).expect("few")) >= rank)
                .expect("a rank within");
            let exact = Duration::from_millis(millis[place - 1]).as_secs_f64();
            let told = sketch.quantile(share).expect("not empty");
            prop_assert!((told / exact - 1.0).abs() <= 0.1, "{told} for {exact}");
        }
    }
}
