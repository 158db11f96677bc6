//! Timers on both clocks.

use std::collections::BTreeSet;

use ganger_types::{
    Due, Elapsed, Graph, IdempotencyKey, JobKey, Now, OperationNumber, ScheduleId, Timestamp,
    UniqueKey,
};

/// A timer. The order of the variants is that of timers at the same time: those that free a slot come before those
/// that need one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The lease of a job expires.
    LeaseEnd(JobKey),
    /// A scheduled job becomes ready.
    JobDue(JobKey),
    /// The deadline of a job passes.
    Deadline(JobKey),
    /// A schedule enqueues its next job.
    Schedule(ScheduleId),
    /// A unique key becomes free.
    UniqueEnd(UniqueKey),
    /// An idempotency key expires.
    IdempotencyKeyEnd(IdempotencyKey),
    /// An operation that has ended is forgotten.
    OperationEnd(OperationNumber),
    /// A part of a submission over several shards is aborted, asked about, or removed.
    Part(Graph),
}

/// The timers of one namespace, ordered by time on each clock.
#[derive(Default)]
pub(crate) struct Timers {
    elapsed: BTreeSet<(Elapsed, Timer)>,
    wall: BTreeSet<(Timestamp, Timer)>,
}

impl Timers {
    pub(crate) fn arm(&mut self, due: Due, timer: Timer) {
        match due {
            Due::Elapsed(at) => self.elapsed.insert((at, timer)),
            Due::Wall(at) => self.wall.insert((at, timer)),
        };
    }

    /// Removes a timer with this due time, if it is still armed; one that is firing is not.
    pub(crate) fn disarm_if_armed(&mut self, due: Due, timer: Timer) {
        match due {
            Due::Elapsed(at) => self.elapsed.remove(&(at, timer)),
            Due::Wall(at) => self.wall.remove(&(at, timer)),
        };
    }

    pub(crate) fn is_armed(&self, due: Due, timer: Timer) -> bool {
        match due {
            Due::Elapsed(at) => self.elapsed.contains(&(at, timer)),
            Due::Wall(at) => self.wall.contains(&(at, timer)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.elapsed.len() + self.wall.len()
    }

    pub(crate) fn next_elapsed(&self) -> Option<Elapsed> {
        self.elapsed.first().map(|(at, _)| *at)
    }

    pub(crate) fn next_wall(&self) -> Option<Timestamp> {
        self.wall.first().map(|(at, _)| *at)
    }

    /// The time at which the earliest due timer became due, on the elapsed clock; `None` if none is due.
    pub(crate) fn earliest_due(&self, now: Now) -> Option<Elapsed> {
        let by_elapsed = self.next_elapsed().filter(|at| *at <= now.elapsed);
        let by_wall = self
            .next_wall()
            .filter(|at| *at <= now.wall)
            .map(|at| as_elapsed(at, now));
        [by_elapsed, by_wall].into_iter().flatten().min()
    }

    /// Removes the earliest due timer and returns it with the time at which it became due.
    pub(crate) fn pop_due(&mut self, now: Now) -> Option<(Elapsed, Timer)> {
        let by_elapsed = self
            .elapsed
            .first()
            .filter(|(at, _)| *at <= now.elapsed)
            .map(|(at, _)| *at);
        let by_wall = self
            .wall
            .first()
            .filter(|(at, _)| *at <= now.wall)
            .map(|(at, _)| as_elapsed(*at, now));
        let takes_elapsed = match (by_elapsed, by_wall) {
            (None, None) => return None,
            (Some(elapsed), Some(wall)) => elapsed <= wall,
            (elapsed, _) => elapsed.is_some(),
        };
        if takes_elapsed {
            self.elapsed.pop_first()
        } else {
            let (at, timer) = self.wall.pop_first()?;
            Some((as_elapsed(at, now), timer))
        }
    }
}

/// A past wall time on the elapsed clock, as seen from `now`.
fn as_elapsed(at: Timestamp, now: Now) -> Elapsed {
    now.elapsed.before(now.wall.since(at))
}
