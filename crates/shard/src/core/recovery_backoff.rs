//! Failed writes in a row, and the pause before the next recovery.
//!
//! The cause of a failed write often lasts: a full device, or timers that fire again as soon as the engine is loaded.
//! Loading again and again without a pause would keep the store and a processor busy, with a large store for minutes.
//! The first recovery is immediate; each further one without a successful write in between waits twice as long as the
//! last, up to a limit.

use std::time::Duration;

use ganger_types::Elapsed;

/// Pause before the second recovery in a row.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause: after an operator frees space the shard works again this soon.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How the engine is loaded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecoveryKind {
    /// The write did not take place: the store is unchanged.
    Load,
    /// The outcome of the write is unknown: the store is opened again first.
    Reopen,
}

/// Number of failures in a row, and the pause after each.
#[derive(Debug, Default)]
pub(super) struct PauseSequence {
    in_a_row: u32,
}

impl PauseSequence {
    /// Returns the pause after one more failure; zero after the first.
    fn next(&mut self) -> Duration {
        let doublings = self.in_a_row.checked_sub(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        doublings.map_or(Duration::ZERO, |doublings| {
            let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
            PAUSE_MIN.saturating_mul(factor).min(PAUSE_MAX)
        })
    }

    fn start_over(&mut self) {
        self.in_a_row = 0;
    }
}

/// Failed writes since the last successful one, and the waiting recovery.
#[derive(Debug, Default)]
pub(super) struct RecoveryBackoff {
    pauses: PauseSequence,
    waiting: Option<(Elapsed, RecoveryKind)>,
}

impl RecoveryBackoff {
    /// Records a failed write; returns the pause before the recovery, zero for the first in a row.
    pub(super) fn note_failure(&mut self) -> Duration {
        self.pauses.next()
    }

    /// Notes that a write succeeded, which resets the pauses.
    pub(super) fn note_success(&mut self) {
        self.pauses.start_over();
    }

    /// Schedules a recovery at `until`.
    pub(super) fn wait(&mut self, until: Elapsed, recovery: RecoveryKind) {
        self.waiting = Some((until, recovery));
    }

    /// Returns when the waiting recovery is due; `None` if none waits.
    pub(super) fn due_at(&self) -> Option<Elapsed> {
        self.waiting.map(|(until, _)| until)
    }

    /// Takes the waiting recovery once it is due.
    pub(super) fn take_due(&mut self, now: Elapsed) -> Option<RecoveryKind> {
        let (_, recovery) = self.waiting.take_if(|(until, _)| *until <= now)?;
        Some(recovery)
    }
}

/// The pause in delivering jobs while the store cannot be read.
#[derive(Debug, Default)]
pub(super) struct DeliveryPause {
    pauses: PauseSequence,
    until: Option<Elapsed>,
    /// Whether a lease request was held back although there may be jobs.
    pub(super) holds_back: bool,
}

impl DeliveryPause {
    /// Records that a job could not be read. All failures at one moment count as one.
    pub(super) fn note_failure(&mut self, now: Elapsed) {
        if !self.is_on(now) {
            self.until = Some(now.after(self.pauses.next().max(PAUSE_MIN)));
        }
    }

    /// Records that jobs could be read, which resets the pause.
    pub(super) fn note_success(&mut self) {
        self.until = None;
        self.pauses.start_over();
    }

    /// Returns whether the pause lasts at `now`.
    pub(super) fn is_on(&self, now: Elapsed) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Returns when the held-back requests are served again; `None` if none are held back.
    pub(super) fn ends_at(&self) -> Option<Elapsed> {
        self.until.filter(|_| self.holds_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_none_to_the_bound_and_start_over_after_a_success() {
        let mut backoff = RecoveryBackoff::default();
        let pauses: Vec<u128> = (0..10)
            .map(|_| backoff.note_failure().as_millis())
            .collect();
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]);
        for _ in 0..100 {
            assert_eq!(backoff.note_failure(), PAUSE_MAX);
        }
        backoff.note_success();
        assert_eq!(backoff.note_failure(), Duration::ZERO);
    }

    #[test]
    fn a_recovery_is_taken_once_and_not_before_its_time() {
        let mut backoff = RecoveryBackoff::default();
        backoff.wait(Elapsed(50), RecoveryKind::Reopen);
        assert_eq!(backoff.due_at(), Some(Elapsed(50)));
        assert_eq!(backoff.take_due(Elapsed(49)), None);
        assert_eq!(backoff.take_due(Elapsed(50)), Some(RecoveryKind::Reopen));
        assert_eq!(backoff.take_due(Elapsed(51)), None);
        assert_eq!(backoff.due_at(), None);
    }
}
