//! When a dead process is replaced, and when nobody tries any longer.

use std::time::Duration;

/// A process that lived so long has started well.
pub(crate) const STARTED_AFTER: Duration = Duration::from_secs(1);
/// Starts in a row that fail before a pool gives up.
const FAILED_STARTS_MAX: u32 = 10;
/// The longest pause before a start, in units of the first one.
const PAUSES_MAX: u32 = 10;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildDeath {
    /// How long it lived.
    pub(crate) lived_for: Duration,
    /// Whether it was given a task that it did not survive. Such a death is the task's fault: a queue full of tasks
    /// that kill their inserter must not end the pool.
    pub(crate) had_task: bool,
}

/// What to do about a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestartDecision {
    /// Start another one after this pause.
    StartAfter(Duration),
    /// Tell that it is of no use.
    GiveUp,
}

/// The deaths in a row of the processes of one worker.
///
/// As Supervisor does with a program of `startretries=10`: pauses of 1, 2, 3, ... seconds between starts that do not
/// last a second; who has lived longer is replaced at once.
#[derive(Debug)]
pub(crate) struct Restarts {
    pause: Duration,
    early: u32,
    failed: u32,
}

impl Restarts {
    /// Nothing has died yet. `pause` is the first one, and by how much each further one is longer: a second, but for
    /// tests.
    pub(crate) fn new(pause: Duration) -> Self {
        Self {
            pause,
            early: 0,
            failed: 0,
        }
    }

    /// A process has done something of use.
    pub(crate) fn did_well(&mut self) {
        *self = Self::new(self.pause);
    }

    /// A process has died.
    pub(crate) fn died(&mut self, death: ChildDeath) -> RestartDecision {
        if death.lived_for >= STARTED_AFTER {
            self.did_well();
            return RestartDecision::StartAfter(Duration::ZERO);
        }
        self.early += 1;
        if !death.had_task {
            self.failed += 1;
        }
        if self.failed >= FAILED_STARTS_MAX {
            return RestartDecision::GiveUp;
        }
        RestartDecision::StartAfter(self.pause * self.early.min(PAUSES_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn early(had_task: bool) -> ChildDeath {
        ChildDeath {
            lived_for: Duration::from_millis(3),
            had_task,
        }
    }

    #[test]
    fn pauses_grow_by_a_second_and_the_tenth_failed_start_is_the_last() {
        let mut restarts = Restarts::new(SECOND);
        for seconds in 1..10 {
            let pause = Duration::from_secs(seconds);
            assert_eq!(
                restarts.died(early(false)),
                RestartDecision::StartAfter(pause)
            );
        }
        assert_eq!(restarts.died(early(false)), RestartDecision::GiveUp);
    }

    #[test]
    fn who_lived_for_a_second_is_replaced_at_once_and_the_count_starts_over() {
        let mut restarts = Restarts::new(SECOND);
        for _ in 1..10 {
            restarts.died(early(false));
        }
        let late = ChildDeath {
            lived_for: STARTED_AFTER,
            had_task: false,
        };
        assert_eq!(
            restarts.died(late),
            RestartDecision::StartAfter(Duration::ZERO)
        );
        let pause = Duration::from_secs(1);
        assert_eq!(
            restarts.died(early(false)),
            RestartDecision::StartAfter(pause)
        );
    }

    #[test]
    fn tasks_that_kill_never_end_the_pool() {
        let mut restarts = Restarts::new(SECOND);
        for _ in 0..1_000 {
            let next = restarts.died(early(true));
            assert!(
                matches!(next, RestartDecision::StartAfter(pause) if pause <= SECOND * PAUSES_MAX)
            );
        }
    }

    #[test]
    fn one_that_did_well_forgives_those_before_it() {
        let mut restarts = Restarts::new(SECOND);
        for _ in 1..10 {
            restarts.died(early(false));
        }
        restarts.did_well();
        let pause = Duration::from_secs(1);
        assert_eq!(
            restarts.died(early(false)),
            RestartDecision::StartAfter(pause)
        );
    }
}
