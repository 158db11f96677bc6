//! Decides when a dead process is replaced, and when the pool gives up.

use std::time::Duration;

/// Run time after which a process counts as started well.
pub(crate) const STARTED_AFTER: Duration = Duration::from_secs(1);
/// Number of failed starts in a row after which a pool gives up.
const FAILED_STARTS_MAX: u32 = 10;
/// Longest pause before a start, in units of the first one.
const PAUSES_MAX: u32 = 10;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildDeath {
    /// Run time of the process.
    pub(crate) lived_for: Duration,
    /// Whether it died while inserting a task. Such a death is the task's fault: a queue full of tasks that kill
    /// their process must not end the pool.
    pub(crate) had_task: bool,
}

/// The reaction to the death of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestartDecision {
    /// Starts another process after this pause.
    StartAfter(Duration),
    /// Ends the pool: the worker's processes die too often.
    GiveUp,
}

/// Counts the deaths in a row of the processes of one worker.
///
/// The pauses are those of Supervisor with `startretries=10`: 1, 2, 3, ... seconds between starts that last less than
/// a second; a process that ran longer is replaced at once.
#[derive(Debug)]
pub(crate) struct Restarts {
    pause: Duration,
    early: u32,
    failed: u32,
}

impl Restarts {
    /// Creates the counter. `pause` is the first pause and the increment of each further one: one second, except in
    /// tests.
    pub(crate) fn new(pause: Duration) -> Self {
        Self {
            pause,
            early: 0,
            failed: 0,
        }
    }

    /// Records that a process has worked, which resets the count.
    pub(crate) fn record_success(&mut self) {
        *self = Self::new(self.pause);
    }

    /// Records a death; returns the reaction.
    pub(crate) fn record_death(&mut self, death: ChildDeath) -> RestartDecision {
        if death.lived_for >= STARTED_AFTER {
            self.record_success();
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
                restarts.record_death(early(false)),
                RestartDecision::StartAfter(pause)
            );
        }
        assert_eq!(restarts.record_death(early(false)), RestartDecision::GiveUp);
    }

    #[test]
    fn a_process_that_lived_for_a_second_is_replaced_at_once_and_resets_the_count() {
        let mut restarts = Restarts::new(SECOND);
        for _ in 1..10 {
            restarts.record_death(early(false));
        }
        let late = ChildDeath {
            lived_for: STARTED_AFTER,
            had_task: false,
        };
        assert_eq!(
            restarts.record_death(late),
            RestartDecision::StartAfter(Duration::ZERO)
        );
        let pause = Duration::from_secs(1);
        assert_eq!(
            restarts.record_death(early(false)),
            RestartDecision::StartAfter(pause)
        );
    }

    #[test]
    fn tasks_that_kill_their_process_never_end_the_pool() {
        let mut restarts = Restarts::new(SECOND);
        for _ in 0..1_000 {
            let next = restarts.record_death(early(true));
            assert!(
                matches!(next, RestartDecision::StartAfter(pause) if pause <= SECOND * PAUSES_MAX)
            );
        }
    }

    #[test]
    fn a_success_resets_the_count() {
        let mut restarts = Restarts::new(SECOND);
        for _ in 1..10 {
            restarts.record_death(early(false));
        }
        restarts.record_success();
        let pause = Duration::from_secs(1);
        assert_eq!(
            restarts.record_death(early(false)),
            RestartDecision::StartAfter(pause)
        );
    }
}
