//! Trust in the wall clock.

use ganger_types::limits::RETENTION_DISTRUST_FOR;
use ganger_types::{Elapsed, Now};

/// Lead over the elapsed clock between two inputs from which a change of the wall clock counts as a jump.
const JUMP_MICROS: u64 = 5_000_000;

/// The latest time, and the time from which retention by age trusts the wall clock. A start counts as a jump, because
/// the clock may have changed meanwhile.
pub(crate) struct ClockTrust {
    /// The latest time of any input in namespaces on the server's clock.
    latest: Now,
    /// Time from which retention by age trusts the wall clock for every job (`rel C4`).
    trusted_from: Elapsed,
    /// Position in the order of endings from which jobs ended after the last start and the last jump. Their age is
    /// known at once, because their end and now are on the same clock.
    trusted_from_order: u64,
}

impl ClockTrust {
    /// The state after a start; `next_order` is the position of the next ending.
    pub(crate) fn new(now: Now, next_order: u64) -> Self {
        Self {
            latest: now,
            trusted_from: now.elapsed.after(RETENTION_DISTRUST_FOR),
            trusted_from_order: next_order,
        }
    }

    /// Detects jumps of the wall clock. Retention does not trust it for a while after a jump forward (`rel C4`).
    pub(crate) fn notice_jumps(&mut self, now: Now, next_order: u64) {
        let elapsed = now.elapsed.0.saturating_sub(self.latest.elapsed.0);
        let wall = now.wall.0.saturating_sub(self.latest.wall.0);
        if wall > elapsed.saturating_add(JUMP_MICROS) {
            self.trusted_from = now.elapsed.after(RETENTION_DISTRUST_FOR);
            self.trusted_from_order = next_order;
        }
    }

    /// The latest elapsed time of any input.
    pub(crate) fn latest_elapsed(&self) -> Elapsed {
        self.latest.elapsed
    }

    /// Records that all timers due by `now` have fired.
    pub(crate) fn reached(&mut self, now: Now) {
        self.latest = now;
    }

    /// Whether the wall clock gives the age of every finished job.
    pub(crate) fn trusts_wall(&self, now: Now) -> bool {
        now.elapsed >= self.trusted_from
    }

    /// Whether the age of at least one finished job may be known. `next_order` is the position of the next ending.
    pub(crate) fn trusts_any_age(&self, now: Now, next_order: u64) -> bool {
        self.trusts_wall(now) || next_order > self.trusted_from_order
    }

    /// Whether the age of the job at this position in the order of endings is known.
    pub(crate) fn trusts_age(&self, now: Now, order: u64) -> bool {
        self.trusts_wall(now) || order >= self.trusted_from_order
    }
}
