//! The shard's clocks: a wall clock that jumps, and an elapsed clock that drifts but never goes back.

use ganger_types::{Elapsed, Meta, Now, Timestamp};

/// Wall clock at the beginning of a run: the first second of 2026.
pub(crate) const DAWN: u64 = 1_767_225_600_000_000;

/// The reading of a caller's clock, which is correct: both readings are the caller's wall clock.
pub(crate) fn callers_now(world: u64) -> Now {
    Now {
        elapsed: Elapsed(DAWN + world),
        wall: Timestamp(DAWN + world),
    }
}

/// Turns the world's time into the two readings of the shard's machine.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    /// Elapsed microseconds per million microseconds of the world.
    rate: u64,
    /// Sum of the jumps of the wall clock, in microseconds.
    offset: i64,
    /// Elapsed clock of the present process: its reading, and the monotonic reading, at the start.
    line: (Elapsed, u64),
}

impl Clocks {
    pub(crate) fn new(rate: u64) -> Self {
        Self {
            rate,
            offset: 0,
            line: (Elapsed(1), 0),
        }
    }

    fn monotonic(&self, world: u64) -> u64 {
        let micros = u128::from(world) * u128::from(self.rate) / 1_000_000;
        u64::try_from(micros).expect("a run is shorter than that")
    }

    pub(crate) fn now(&self, world: u64) -> Now {
        let monotonic = self.monotonic(world);
        let (start, origin) = self.line;
        let wall = (DAWN + monotonic).saturating_add_signed(self.offset);
        Now {
            elapsed: Elapsed(start.0 + (monotonic - origin)),
            wall: Timestamp(wall),
        }
    }

    /// Starts the clocks of a new process: elapsed time continues from the last commit, plus the time that has passed
    /// since by the wall clock, if that is positive.
    pub(crate) fn restart(&mut self, world: u64, meta: Meta) {
        let wall = self.now(world).wall;
        let is_new = meta.wall == Timestamp(0);
        let start = if is_new {
            meta.elapsed
        } else {
            meta.elapsed.after(wall.since(meta.wall))
        };
        self.line = (start.max(Elapsed(1)), self.monotonic(world));
    }

    /// Moves the wall clock forward or back.
    pub(crate) fn jump(&mut self, micros: i64) {
        self.offset = self.offset.saturating_add(micros);
    }

    /// Corrects the wall clock.
    pub(crate) fn heal(&mut self) {
        self.offset = self.offset.max(0);
    }

    /// World microseconds until this duration has passed on the shard's clock.
    pub(crate) fn world_micros(&self, shard: std::time::Duration) -> u64 {
        let micros = shard.as_micros() * 1_000_000 / u128::from(self.rate);
        u64::try_from(micros).unwrap_or(u64::MAX / 4) + 1
    }
}
