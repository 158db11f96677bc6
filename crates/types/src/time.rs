//! Time as two readings: a wall clock for calendar times, an elapsed clock for durations.
//!
//! Units are whole microseconds. The shard hands both readings to the engine with every input; the
//! engine never reads a clock (`rel C1`).

use std::fmt;
use std::time::Duration;

/// Microseconds in a second.
pub const MICROS_PER_SECOND: u64 = 1_000_000;

/// A point on the wall clock, in microseconds since the Unix epoch. May jump either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// A point on the shard's own monotonic time line, in microseconds.
///
/// The line outlives the process: at start it goes on from the last committed reading, plus what the
/// wall clock says has passed since, never less than zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Elapsed(pub u64);

/// Both readings of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The monotonic reading: for leases, backoff, relative delays, timeouts.
    pub elapsed: Elapsed,
    /// The calendar reading: for `run_at`, schedules, deadlines, retention by age, and display.
    pub wall: Timestamp,
}

/// When a scheduled job becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Due {
    /// After a duration (a delay, a backoff): a jump of the wall clock does not move it.
    Elapsed(Elapsed),
    /// At a calendar time the user named.
    Wall(Timestamp),
}

/// Whole microseconds of `duration`, saturating.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

macro_rules! arithmetic {
    ($type:ident) => {
        impl $type {
            /// The point `duration` later, saturating at the end of time.
            #[must_use]
            pub fn after(self, duration: Duration) -> Self {
                Self(self.0.saturating_add(micros(duration)))
            }

            /// The point `duration` earlier, saturating at zero.
            #[must_use]
            pub fn before(self, duration: Duration) -> Self {
                Self(self.0.saturating_sub(micros(duration)))
            }

            /// How long after `earlier` this point is; zero if it is not after it.
            pub fn since(self, earlier: Self) -> Duration {
                Duration::from_micros(self.0.saturating_sub(earlier.0))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "{}.{:06}",
                    self.0 / MICROS_PER_SECOND,
                    self.0 % MICROS_PER_SECOND
                )
            }
        }
    };
}
arithmetic!(Timestamp);
arithmetic!(Elapsed);

impl Due {
    /// Whether the time has come.
    pub fn is_past(self, now: Now) -> bool {
        match self {
            Self::Elapsed(at) => at <= now.elapsed,
            Self::Wall(at) => at <= now.wall,
        }
    }

    /// The wall time at which this is expected, for people and for `why`.
    pub fn expected_at(self, now: Now) -> Timestamp {
        match self {
            Self::Wall(at) => at,
            Self::Elapsed(at) => now.wall.after(at.since(now.elapsed)),
        }
    }
}
