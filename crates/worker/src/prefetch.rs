//! Jobs in hand: they came while every slot was busy, and the first slot to be free takes the oldest.
//!
//! A worker whose programs are short asks for some jobs more than it has slots, so that a slot goes from one to the
//! next without waiting for the server. What is in hand has not been started: it is given back uncounted when the
//! worker stops, or when no slot was free in time after all.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::slot::Work;

/// How long a job may be in hand: so much later may another worker get it at worst.
const HOLD_FOR: Duration = Duration::from_millis(100);
/// A worker takes ahead while its programs run shorter than this on average, so that a job in hand is soon started.
const SHORT: Duration = Duration::from_millis(20);
/// So many programs must have shown it.
const RUNS_MIN: u32 = 8;

/// The jobs in hand. Sorted by the time they came.
#[derive(Default)]
pub(crate) struct Prefetched {
    jobs: Mutex<VecDeque<(Instant, Box<Work>)>>,
}

impl Prefetched {
    /// Takes a job into hand.
    pub(crate) fn put(&self, work: Box<Work>) {
        self.lock().push_back((Instant::now(), work));
    }

    /// Takes the oldest job out; `None` if there is none.
    pub(crate) fn take(&self) -> Option<Box<Work>> {
        self.lock().pop_front().map(|(_, work)| work)
    }

    /// When the oldest job has been in hand for long enough.
    pub(crate) fn overdue_at(&self) -> Option<Instant> {
        self.lock().front().map(|(came_at, _)| *came_at + HOLD_FOR)
    }

    /// All jobs that have been in hand for long enough at `now`.
    pub(crate) fn take_overdue(&self, now: Instant) -> Vec<Work> {
        let mut jobs = self.lock();
        let count = jobs.partition_point(|(came_at, _)| *came_at + HOLD_FOR <= now);
        jobs.drain(..count).map(|(_, work)| *work).collect()
    }

    /// Takes all jobs out, the oldest first.
    pub(crate) fn take_all(&self) -> Vec<Work> {
        self.lock().drain(..).map(|(_, work)| *work).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, Box<Work>)>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long programs ran lately.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Mean length of a run, the last eight having most weight.
    average: Duration,
    /// Runs seen, as far as it matters.
    runs: u32,
}

impl Pace {
    /// A program ran for so long.
    pub(crate) fn ran(&mut self, took: Duration) {
        self.average = if self.runs == 0 {
            took
        } else {
            (self.average * 7 + took) / 8
        };
        self.runs = RUNS_MIN.min(self.runs + 1);
    }

    /// How many jobs a worker of so many slots should have in hand: one for each while programs are short, else none.
    pub(crate) fn ahead(&self, slots: usize) -> usize {
        let is_short = self.runs >= RUNS_MIN && self.average < SHORT;
        if is_short { slots } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_worker_of_short_programs_takes_jobs_ahead() {
        let mut pace = Pace::default();
        for _ in 0..RUNS_MIN {
            assert_eq!(pace.ahead(4), 0);
            pace.ran(Duration::from_millis(1));
        }
        assert_eq!(pace.ahead(4), 4);
        pace.ran(Duration::from_secs(1));
        assert_eq!(pace.ahead(4), 0);
    }
}
