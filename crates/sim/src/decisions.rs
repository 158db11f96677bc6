//! Decisions about the outcomes of commits, and limits of recoveries.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ganger_types::Elapsed;

/// Maximum number of recoveries within [`RECOVERIES_WITHIN`] without a durable commit in between; the core's pauses
/// double from 10 ms on.
const RECOVERIES_MAX: usize = 10;
const RECOVERIES_WITHIN: Duration = Duration::from_secs(1);

/// Commands whose random numbers have decided the outcome of a store task. Each command decides once, because a
/// waiting lease request is tried repeatedly and must not get the same outcome forever.
#[derive(Default)]
pub(crate) struct Decisions {
    closed: BTreeSet<u64>,
    /// Number of store tasks without a deciding command, at the last time that had one.
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

/// Times of the last recoveries without a durable commit in between.
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

    /// Clears the recoveries after a durable commit.
    pub(crate) fn forget(&mut self) {
        self.times.clear();
    }

    /// Whether the core recovers repeatedly without a pause although every write fails.
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
    fn store_tasks_at_one_time_are_distinguished() {
        let mut decisions = Decisions::default();
        let before: Vec<u64> = [5, 5, 5, 6, 5]
            .map(|time| decisions.orders_before_at(time))
            .to_vec();
        assert_eq!(before, [0, 1, 2, 0, 0]);
    }
}
