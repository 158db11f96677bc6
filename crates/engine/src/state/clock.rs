//! How far the engine believes the wall clock.

use ganger_types::limits::RETENTION_DISTRUST_FOR;
use ganger_types::{Elapsed, Now};

/// A wall clock that runs ahead of the elapsed one by more than this between two inputs has jumped.
const JUMP_MICROS: u64 = 5_000_000;

/// The latest moment, and from when on retention by age believes the wall clock. A start counts as a jump: nobody knows
/// what the clock did meanwhile.
pub(crate) struct ClockTrust {
    /// The latest moment any input brought, in namespaces on the server's clock.
    latest: Now,
    /// From then on retention by age believes the wall clock for every job (`rel C4`).
    trusted_from: Elapsed,
    /// Jobs whose place in the order of endings is this or later ended after the last start and the last
    /// jump: both their times are of one clock, so retention need not wait.
    trusted_from_order: u64,
}

impl ClockTrust {
    /// At a start; `next_order` is the next ending's place in the order of endings.
    pub(crate) fn new(now: Now, next_order: u64) -> Self {
        Self {
            latest: now,
            trusted_from: now.elapsed.after(RETENTION_DISTRUST_FOR),
            trusted_from_order: next_order,
        }
    }

    /// A wall clock that jumped forward is not believed by retention for a while (`rel C4`).
    pub(crate) fn notice_jumps(&mut self, now: Now, next_order: u64) {
        let elapsed = now.elapsed.0.saturating_sub(self.latest.elapsed.0);
        let wall = now.wall.0.saturating_sub(self.latest.wall.0);
        if wall > elapsed.saturating_add(JUMP_MICROS) {
            self.trusted_from = now.elapsed.after(RETENTION_DISTRUST_FOR);
            self.trusted_from_order = next_order;
        }
    }

    /// The latest elapsed time that any input brought.
    pub(crate) fn latest_elapsed(&self) -> Elapsed {
        self.latest.elapsed
    }

    /// Everything due by now was done.
    pub(crate) fn reached(&mut self, now: Now) {
        self.latest = now;
    }

    /// Whether the age of every finished job can be told by the wall clock.
    pub(crate) fn trusts_wall(&self, now: Now) -> bool {
        now.elapsed >= self.trusted_from
    }

    /// Whether the age of any finished job can be told. `next_order` is the next ending's place in the order of endings.
    pub(crate) fn trusts_any_age(&self, now: Now, next_order: u64) -> bool {
        self.trusts_wall(now) || next_order > self.trusted_from_order
    }

    /// Whether the age of a job with this place in the order of endings can be told.
    pub(crate) fn trusts_age(&self, now: Now, order: u64) -> bool {
        self.trusts_wall(now) || order >= self.trusted_from_order
    }
}
