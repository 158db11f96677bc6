//! Prefetched jobs: they arrived while every slot was busy, and the first free slot takes the oldest.
//!
//! A worker whose programs are short asks for some jobs more than it has slots, so that a slot continues without
//! waiting for the server. Prefetched jobs have not been started: they are released uncounted when the worker
//! stops, or when no slot becomes free in time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::slot::Work;

/// Longest time that a job waits for a slot, by which another worker may get it later.
const PREFETCH_HOLD_MAX: Duration = Duration::from_millis(100);
/// Average run time below which a worker prefetches, so that a prefetched job starts soon.
const SHORT_RUN: Duration = Duration::from_millis(20);
/// Number of runs needed for the average.
const RUNS_MIN: u32 = 8;

/// The prefetched jobs, sorted by arrival.
#[derive(Default)]
pub(crate) struct Prefetched {
    jobs: Mutex<VecDeque<(Instant, Box<Work>)>>,
}

impl Prefetched {
    /// Adds a job behind all others.
    pub(crate) fn put(&self, work: Box<Work>) {
        self.lock().push_back((Instant::now(), work));
    }

    /// Takes the oldest job out; `None` if there is none.
    pub(crate) fn take(&self) -> Option<Box<Work>> {
        self.lock().pop_front().map(|(_, work)| work)
    }

    /// Returns when the oldest job has waited for too long.
    pub(crate) fn overdue_at(&self) -> Option<Instant> {
        self.lock()
            .front()
            .map(|(came_at, _)| *came_at + PREFETCH_HOLD_MAX)
    }

    /// Takes all jobs that have waited for too long at `now`.
    pub(crate) fn take_overdue(&self, now: Instant) -> Vec<Work> {
        let mut jobs = self.lock();
        let count = jobs.partition_point(|(came_at, _)| *came_at + PREFETCH_HOLD_MAX <= now);
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

/// The average run time of recent programs.
#[derive(Debug, Default)]
pub(crate) struct RunTimeAverage {
    /// Mean run time, in which the last eight runs have most weight.
    average: Duration,
    /// Number of runs seen, up to [`RUNS_MIN`].
    runs: u32,
}

impl RunTimeAverage {
    /// Records the run time of a program.
    pub(crate) fn ran(&mut self, took: Duration) {
        self.average = if self.runs == 0 {
            took
        } else {
            (self.average * 7 + took) / 8
        };
        self.runs = RUNS_MIN.min(self.runs + 1);
    }

    /// Returns how many jobs a worker with `slots` slots should prefetch: one for each slot while programs are short,
    /// otherwise none.
    pub(crate) fn prefetch_count(&self, slots: usize) -> usize {
        let is_short = self.runs >= RUNS_MIN && self.average < SHORT_RUN;
        if is_short { slots } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_worker_of_short_programs_prefetches() {
        let mut pace = RunTimeAverage::default();
        for _ in 0..RUNS_MIN {
            assert_eq!(pace.prefetch_count(4), 0);
            pace.ran(Duration::from_millis(1));
        }
        assert_eq!(pace.prefetch_count(4), 4);
        pace.ran(Duration::from_secs(1));
        assert_eq!(pace.prefetch_count(4), 0);
    }
}
