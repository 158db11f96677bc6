//! What is known of the commits of a shard that were confirmed: so that a database which went back in time is noticed.

use std::sync::{Mutex, PoisonError};

/// Bits of an epoch below the number of rewinds that were accepted. A mark of before such a rewind counts no more.
const CLAIM_BITS: u32 = 32;

/// The newest commit of a shard that is known to be confirmed, and the newest claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Number of the claim; 0 if none is known.
    pub epoch: u64,
    /// Sequence of the commit; 0 if none is known.
    pub sequence: u64,
}

impl Mark {
    /// The mark of a claim in the epoch `epoch` that found `last` to be the last commit: it is confirmed with the claim.
    /// The claim itself is none: if it is lost before a commit follows, nobody misses anything.
    pub fn of_claim(epoch: u64, last: u64) -> Self {
        Self {
            epoch: epoch >> CLAIM_BITS << CLAIM_BITS,
            sequence: last,
        }
    }

    /// Number of rewinds that were accepted before.
    fn rewinds(self) -> u64 {
        self.epoch >> CLAIM_BITS
    }

    /// Whether a store whose last claim is `epoch` and whose log ends with the commit `last` has lost some of this.
    pub fn is_missing_from(self, epoch: u64, last: u64) -> bool {
        let store = Self {
            epoch,
            sequence: last,
        };
        self.rewinds() > store.rewinds()
            || self.rewinds() == store.rewinds() && (self.epoch > epoch || self.sequence > last)
    }

    /// Returns what is known by both together.
    fn with(self, other: Self) -> Self {
        match self.rewinds().cmp(&other.rewinds()) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Equal => Self {
                epoch: self.epoch.max(other.epoch),
                sequence: self.sequence.max(other.sequence),
            },
        }
    }
}

/// Returns the epoch of a shard whose rewind is accepted: larger than that of each mark of before.
pub fn epoch_after_rewind(epoch: u64) -> u64 {
    ((epoch >> CLAIM_BITS) + 1) << CLAIM_BITS
}

/// The mark of one shard, which its owner raises with each commit, and other nodes by what they are told.
#[derive(Debug, Default)]
pub struct KnownMark(Mutex<Mark>);

impl KnownMark {
    /// Returns what is known now; epoch and sequence are 0 as long as nothing is.
    pub fn now(&self) -> Mark {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what somebody else knows; returns all that is known.
    pub fn learn(&self, other: Mark) -> Mark {
        let mut mark = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *mark = mark.with(other);
        *mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(epoch: u64, sequence: u64) -> Mark {
        Mark { epoch, sequence }
    }

    #[test]
    fn a_lost_commit_and_a_lost_claim_are_missing_until_that_is_accepted() {
        assert!(!mark(0, 0).is_missing_from(0, 0));
        assert!(!mark(7, 100).is_missing_from(7, 100));
        assert!(!mark(3, 90).is_missing_from(7, 100));
        assert!(mark(7, 101).is_missing_from(7, 100));
        assert!(mark(3, 101).is_missing_from(7, 100));
        assert!(mark(8, 100).is_missing_from(7, 100), "a claim is lost");
        let after = epoch_after_rewind(7);
        assert_eq!(after, 1 << 32);
        assert!(!mark(9, 101).is_missing_from(after, 100), "it is accepted");
        assert!(mark(after, 101).is_missing_from(after, 100));
        assert!(mark(after, 50).is_missing_from(7, 100), "restored again");
        assert_eq!(epoch_after_rewind(after + 5), 2 << 32);
    }

    #[test]
    fn what_a_claim_has_found_is_known_and_the_claim_itself_may_get_lost() {
        let known = KnownMark::default();
        known.learn(mark(3, 1));
        let now = known.learn(Mark::of_claim(7, 2));
        assert_eq!(now, mark(3, 2));
        assert!(now.is_missing_from(7, 1));
        assert!(!now.is_missing_from(6, 2), "the claim is lost alone");
        let after = epoch_after_rewind(7);
        assert_eq!(known.learn(Mark::of_claim(after + 3, 1)), mark(after, 1));
    }

    #[test]
    fn an_owner_that_lost_commits_does_not_hide_that_from_those_who_know_of_them() {
        let known = KnownMark::default();
        known.learn(mark(5, 1_000));
        let now = known.learn(mark(6, 900));
        assert_eq!(now, mark(6, 1_000));
        assert!(now.is_missing_from(6, 900));
        known.learn(mark(epoch_after_rewind(6), 900));
        assert_eq!(known.learn(mark(6, 1_000)).sequence, 900);
    }
}
