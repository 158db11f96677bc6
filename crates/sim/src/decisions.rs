//! What decides how a commit ends, and how soon the shard may recover from those that failed.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ganger_types::Elapsed;

/// Recoveries without a durable commit between that the core may order within [`RECOVERIES_WITHIN`]:
/// its pauses double from 10 ms on.
const RECOVERIES_MAX: usize = 10;
const RECOVERIES_WITHIN: Duration = Duration::from_secs(1);

/// Commands whose random numbers have decided the outcome of a store task. Those of a command decide once: a
/// lease request that waits is tried again and again, and must not meet the same outcome forever.
#[derive(Default)]
pub(crate) struct Decisions {
    closed: BTreeSet<u64>,
    /// Orders without a command to decide, at the last moment that had one.
    undecided: (u64, u64),
}

impl Decisions {
    /// Whether the random numbers of this command may decide.
    pub(crate) fn is_open(&self, op: u64) -> bool {
        !self.closed.contains(&op)
    }

    /// Records that the random numbers of this command have decided.
    pub(crate) fn close(&mut self, op: u64) {
        self.closed.insert(op);
    }

    /// Number of earlier store tasks at this moment whose outcome no command decides.
    pub(crate) fn orders_before_at(&mut self, time: u64) -> u64 {
        let (moment, count) = self.undecided;
        let before = if moment == time { count } else { 0 };
        self.undecided = (time, before + 1);
        before
    }
}

/// When the core ordered each of the last recoveries without a durable commit between.
#[derive(Default)]
pub(crate) struct Recoveries {
    times: VecDeque<Elapsed>,
}

impl Recoveries {
    /// Records the time of a recovery that was ordered.
    pub(crate) fn note(&mut self, at: Elapsed) {
        self.times.push_back(at);
        if self.times.len() > RECOVERIES_MAX {
            self.times.pop_front();
        }
    }

    /// A commit is durable.
    pub(crate) fn forget(&mut self) {
        self.times.clear();
    }

    /// Whether the rows are read back again and again without a pause, though every write fails: with
    /// many rows, that keeps the machine busy for nothing.
    pub(crate) fn are_without_pause(&self) -> bool {
        let (Some(first), Some(last)) = (self.times.front(), self.times.back()) else {
            return false;
        };
        self.times.len() == RECOVERIES_MAX && last.since(*first) < RECOVERIES_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_recoveries_within_a_second_are_without_pause_unless_a_write_came_between() {
        let mut recoveries = Recoveries::default();
        for at in 0..9 {
            recoveries.note(Elapsed(at));
        }
        assert!(!recoveries.are_without_pause());
        recoveries.note(Elapsed(999_999));
        assert!(recoveries.are_without_pause());
        recoveries.note(Elapsed(1_500_000));
        assert!(!recoveries.are_without_pause());
        recoveries.forget();
        recoveries.note(Elapsed(1_500_000));
        assert!(!recoveries.are_without_pause());
    }

    #[test]
    fn orders_of_one_moment_are_told_apart() {
        let mut decisions = Decisions::default();
        let before: Vec<u64> = [5, 5, 5, 6, 5]
            .map(|time| decisions.orders_before_at(time))
            .to_vec();
        assert_eq!(before, [0, 1, 2, 0, 0]);
    }
}
