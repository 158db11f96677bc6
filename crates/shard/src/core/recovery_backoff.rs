//! Failed writes in a row, and the pause before the next attempt to recover.
//!
//! What made a write fail is often still there a moment later: a full device, timers that fire again as
//! soon as the rows are back. Reading them back at once, again and again, would keep the store and a
//! processor busy for nothing, with a large store for minutes. The first recovery is immediate; each
//! further one without a write between waits twice as long as the one before, up to a bound.

use std::time::Duration;

use ganger_types::Elapsed;

/// Before the second recovery in a row.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Never longer: an operator who frees space sees the shard work again this soon.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How the rows come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecoveryKind {
    /// The write did not take place: the store is as it was.
    Load,
    /// Nobody knows what the write left behind: the store is opened again first.
    Reopen,
}

/// Failures in a row, and the pause after each.
#[derive(Debug, Default)]
pub(super) struct PauseSequence {
    in_a_row: u32,
}

impl PauseSequence {
    /// How long to wait after one more failure; zero after the first.
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

/// Writes that failed since the last one that did not, and the recovery that waits.
#[derive(Debug, Default)]
pub(super) struct RecoveryBackoff {
    pauses: PauseSequence,
    waiting: Option<(Elapsed, RecoveryKind)>,
}

impl RecoveryBackoff {
    /// A write failed: how long to wait before the recovery; zero for the first in a row.
    pub(super) fn note_failure(&mut self) -> Duration {
        self.pauses.next()
    }

    /// Notes that a write succeeded, which resets the pauses.
    pub(super) fn note_success(&mut self) {
        self.pauses.start_over();
    }

    /// Lets a recovery wait.
    pub(super) fn wait(&mut self, until: Elapsed, recovery: RecoveryKind) {
        self.waiting = Some((until, recovery));
    }

    /// When the recovery that waits is due.
    pub(super) fn due_at(&self) -> Option<Elapsed> {
        self.waiting.map(|(until, _)| until)
    }

    /// Takes the recovery that waits, once it is due.
    pub(super) fn take_due(&mut self, now: Elapsed) -> Option<RecoveryKind> {
        let (_, recovery) = self.waiting.take_if(|(until, _)| *until <= now)?;
        Some(recovery)
    }
}

/// The pause in handing out jobs while the store cannot be read.
#[derive(Debug, Default)]
pub(super) struct DeliveryPause {
    pauses: PauseSequence,
    until: Option<Elapsed>,
    /// Whether a request for jobs waits although there may be some.
    pub(super) holds_back: bool,
}

impl DeliveryPause {
    /// A job could not be read. All that fail at one moment are one failure.
    pub(super) fn note_failure(&mut self, now: Elapsed) {
        if !self.is_on(now) {
            self.until = Some(now.after(self.pauses.next().max(PAUSE_MIN)));
        }
    }

    /// Jobs could be read.
    pub(super) fn note_success(&mut self) {
        self.until = None;
        self.pauses.start_over();
    }

    /// Returns whether the pause lasts at `now`.
    pub(super) fn is_on(&self, now: Elapsed) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// When to hand out again what was held back.
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
