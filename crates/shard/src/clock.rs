//! Clocks: the machine's, and one that tests move by hand.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ganger_store::Opened;
use ganger_types::{Elapsed, Now, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// Called after a clock was moved by hand.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Source of time for a shard.
pub trait Clock: Send + Sync + 'static {
    /// Returns a time that never goes back, from an arbitrary origin.
    fn monotonic(&self) -> Duration;

    /// Returns the current calendar time.
    fn wall(&self) -> Timestamp;

    /// Returns how long the shard may sleep if it has nothing to do for `wanted`; `None` means until it is woken.
    fn sleep_for(&self, wanted: Duration) -> Option<Duration> {
        Some(wanted)
    }

    /// Registers a callback for when the clock is moved by hand. Clocks that run by themselves ignore it.
    fn on_move(&self, _wake: Wake) {}
}

/// The machine's clocks: `CLOCK_BOOTTIME`, which also counts while the machine is suspended, and `CLOCK_REALTIME`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        read(ClockId::Boottime)
    }

    fn wall(&self) -> Timestamp {
        Timestamp(0).after(read(ClockId::Realtime))
    }
}

/// A clock that changes only when a test moves it.
#[derive(Default)]
pub struct ManualClock {
    state: Mutex<ManualState>,
}

#[derive(Default)]
struct ManualState {
    monotonic: Duration,
    wall: Timestamp,
    wakes: Vec<Wake>,
}

impl ManualClock {
    /// Creates a clock that shows this calendar time.
    pub fn new(wall: Timestamp) -> Arc<Self> {
        let state = ManualState {
            wall,
            ..ManualState::default()
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Advances both readings and wakes the shards that sleep by this clock.
    pub fn advance(&self, by: Duration) {
        self.change(|state| {
            state.monotonic += by;
            state.wall = state.wall.after(by);
        });
    }

    /// Sets only the calendar reading.
    pub fn set_wall(&self, wall: Timestamp) {
        self.change(|state| state.wall = wall);
    }

    fn change(&self, change: impl FnOnce(&mut ManualState)) {
        let wakes = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut state);
            state.wakes.clone()
        };
        for wake in wakes {
            wake();
        }
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .monotonic
    }

    fn wall(&self) -> Timestamp {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wall
    }

    fn sleep_for(&self, _wanted: Duration) -> Option<Duration> {
        None
    }

    fn on_move(&self, wake: Wake) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wakes
            .push(wake);
    }
}

/// The shard's elapsed time, which continues over restarts (`rel C1`).
#[derive(Clone, Copy, Debug)]
pub struct TimeLine {
    start: Elapsed,
    origin: Duration,
}

impl TimeLine {
    /// Continues from the last commit, plus the time for which nobody had the store. A store that several owners share
    /// measures that with its own clock; else it is the difference of this machine's wall clock, never less than zero: a
    /// wrong clock at start can shift a pause, but elapsed time never goes back.
    pub fn resume(opened: &Opened, clock: &dyn Clock) -> Self {
        let meta = opened.meta;
        let away = match opened.away {
            Some(away) => away,
            None if meta.wall == Timestamp(0) => Duration::ZERO,
            None => clock.wall().since(meta.wall),
        };
        let start = meta.elapsed.after(away);
        Self {
            start,
            origin: clock.monotonic(),
        }
    }

    /// Returns both readings of this moment.
    pub fn now(&self, clock: &dyn Clock) -> Now {
        let passed = clock.monotonic().saturating_sub(self.origin);
        Now {
            elapsed: self.start.after(passed),
            wall: clock.wall(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ganger_types::{Epoch, Meta};

    use super::*;

    fn opened(elapsed: u64, wall: u64, away: Option<Duration>) -> Opened {
        Opened {
            epoch: Epoch(1),
            sequence: 1,
            meta: Meta {
                elapsed: Elapsed(elapsed),
                wall: Timestamp(wall),
                ..Meta::default()
            },
            away,
        }
    }

    #[test]
    fn elapsed_time_goes_on_over_a_restart_by_the_wall_clock() {
        let clock = ManualClock::new(Timestamp(5_000_000));
        let line = TimeLine::resume(&opened(700, 2_000_000, None), &*clock);
        assert_eq!(line.now(&*clock).elapsed, Elapsed(3_000_700));
        clock.advance(Duration::from_micros(9));
        assert_eq!(line.now(&*clock).elapsed, Elapsed(3_000_709));
    }

    #[test]
    fn a_wall_clock_that_went_back_never_takes_elapsed_time_back() {
        let clock = ManualClock::new(Timestamp(1));
        let line = TimeLine::resume(&opened(700, 2_000_000, None), &*clock);
        assert_eq!(line.now(&*clock).elapsed, Elapsed(700));
        clock.set_wall(Timestamp(0));
        clock.advance(Duration::from_micros(1));
        assert_eq!(line.now(&*clock).elapsed, Elapsed(701));
    }

    #[test]
    fn an_owner_with_a_wrong_wall_clock_goes_on_by_the_clock_of_the_store() {
        let clock = ManualClock::new(Timestamp(9_000_000_000));
        let away = Some(Duration::from_micros(40));
        let line = TimeLine::resume(&opened(700, 2_000_000, away), &*clock);
        assert_eq!(line.now(&*clock).elapsed, Elapsed(740));
    }

    #[test]
    fn the_system_clock_is_in_this_century() {
        assert!(SystemClock.wall() > Timestamp(1_700_000_000_000_000));
        assert!(SystemClock.monotonic() > Duration::ZERO);
    }
}
