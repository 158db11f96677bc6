//! Time as read from two clocks: a wall clock for calendar times, an elapsed clock for durations.
//!
//! The unit is a microsecond. The shard passes both readings to the engine with every command; the engine never reads
//! a clock (`rel C1`).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Microseconds in a second.
pub const MICROS_PER_SECOND: u64 = 1_000_000;

/// A point on the wall clock, in microseconds since the Unix epoch. May jump either way.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp(pub u64);

/// A point on the shard's own monotonic clock, in microseconds.
///
/// The clock outlives the process: a start continues from the last committed reading, plus the time that has passed
/// since by the wall clock, if that is positive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Elapsed(pub u64);

/// Both readings of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Elapsed clock: for leases, backoff, relative delays and timeouts.
    pub elapsed: Elapsed,
    /// Wall clock: for `run_at`, schedules, deadlines, retention by age, and display.
    pub wall: Timestamp,
}

/// When a scheduled job becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Due {
    /// After a duration, such as a delay or a backoff: a jump of the wall clock does not change it.
    Elapsed(Elapsed),
    /// At a calendar time that the client chose.
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

            /// The time from `earlier` to this point; zero if this point is earlier.
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

    /// The wall time at which the job is expected to become ready, for people.
    pub fn expected_at(self, now: Now) -> Timestamp {
        match self {
            Self::Wall(at) => at,
            Self::Elapsed(at) => now.wall.after(at.since(now.elapsed)),
        }
    }
}
