//! Splittable random numbers: every event has a generator of its own.
//!
//! The numbers of one event do not depend on those of others, so that a tape keeps its meaning when steps are
//! removed.

use std::time::Duration;

/// Random numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
}

/// One round of splitmix64's mixer.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: mix(seed) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A generator for something that this event causes.
    pub(crate) fn split(&mut self) -> Self {
        Self::new(self.next())
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub(crate) fn small(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(u64::from(bound))).expect("below a small bound")
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        let length = u64::try_from(length).expect("a length fits");
        usize::try_from(self.below(length)).expect("below a length")
    }

    /// True with this probability, per mille.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    pub(crate) fn word(&mut self, of: &[&'static str]) -> &'static str {
        of[self.index(of.len())]
    }

    pub(crate) fn maybe<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() {
            None
        } else {
            Some(self.pick(of))
        }
    }

    /// A duration of whole milliseconds within these bounds.
    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.within(low, high))
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        for chunk in out.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_dice_do_not_disturb_each_other() {
        let mut one = Rng::new(7);
        let mut child = one.split();
        let after = one.next();
        let mut two = Rng::new(7);
        let mut other = two.split();
        for _ in 0..10 {
            other.next();
        }
        assert_eq!(two.next(), after);
        assert_eq!(child.next(), Rng::new(7).split().next());
    }
}
