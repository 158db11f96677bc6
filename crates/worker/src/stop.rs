//! Stopping a run: the cause, when the program is asked to end, when it is killed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

/// The reason why a run must end before its program does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// The lease has ended or the job was cancelled; the outcome is dropped.
    LeaseLost(String),
    /// The run reached its time limit.
    TimedOut(Duration),
    /// The worker stops and interrupts the run.
    Interrupted,
}

/// Asks a run to stop, from any thread.
pub(crate) struct Stop {
    asked: Mutex<StopRequest>,
    wake_fd: OwnedFd,
}

#[derive(Clone, Debug, Default)]
struct StopRequest {
    why: Option<StopCause>,
    at_once: bool,
}

impl Stop {
    /// Creates a stop that is not requested yet.
    pub(crate) fn new() -> io::Result<Self> {
        let wake_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            asked: Mutex::default(),
            wake_fd,
        })
    }

    /// Requests the stop. The first cause is kept, but a lost lease replaces any other.
    pub(crate) fn ask(&self, why: StopCause) {
        self.change(|asked| {
            if asked.why.is_none() || matches!(why, StopCause::LeaseLost(_)) {
                asked.why = Some(why);
            }
        });
    }

    /// Skips the grace period, also of a later request.
    pub(crate) fn skip_grace(&self) {
        self.change(|asked| asked.at_once = true);
    }

    fn change(&self, change: impl FnOnce(&mut StopRequest)) {
        change(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner));
        // Fails only if the descriptor is readable already.
        let _ = rustix::io::write(&self.wake_fd, &1_u64.to_ne_bytes());
    }

    /// Returns the requested cause, and whether the grace period is skipped.
    pub(crate) fn asked(&self) -> (Option<StopCause>, bool) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake_fd, &mut count);
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        (asked.why.clone(), asked.at_once)
    }

    /// Returns a descriptor that is readable once a stop was requested.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake_fd.as_fd()
    }
}

/// The time limits of a run.
pub(crate) struct TimeBounds {
    /// Time at which the run must end, and the length of run that this is; `None` for no limit.
    pub(crate) timeout: Option<(Instant, Duration)>,
    /// Time between asking and killing.
    pub(crate) grace: Duration,
    /// Length of the lease.
    pub(crate) lease_for: Duration,
    /// Returns the time until which the lease surely lasts; `None` if it has ended, which is reported otherwise.
    pub(crate) lease_ends: Box<dyn Fn() -> Option<Instant> + Send>,
}

impl TimeBounds {
    /// Returns how long before the lease's end every process must be dead: clocks may differ by a hundredth (`rel
    /// L8`).
    fn margin(&self) -> Duration {
        self.lease_for / 50 + Duration::from_millis(50)
    }

    /// Returns the grace period before the lease's end: at most a quarter of the lease.
    fn grace_before_lease_end(&self) -> Duration {
        self.grace.min(self.lease_for / 4)
    }
}

/// The next step in stopping a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Wait until this time; without limit if `None`.
    WaitUntil(Option<Instant>),
    /// Asks the program to end.
    Terminate,
    /// Kills all remaining processes.
    Kill,
}

/// Decides when a run is asked to end, and when it is killed (`rel W3`).
pub(crate) struct StopSchedule {
    bounds: TimeBounds,
    why: Option<StopCause>,
    kill_at: Option<Instant>,
    is_killed: bool,
}

impl StopSchedule {
    pub(crate) fn new(bounds: TimeBounds) -> Self {
        Self {
            bounds,
            why: None,
            kill_at: None,
            is_killed: false,
        }
    }

    /// Returns why the run is being stopped; `None` if it is not.
    pub(crate) fn why(&self) -> Option<&StopCause> {
        self.why.as_ref()
    }

    /// Decides the next step at `now`; `asked` comes from [`Stop::asked`].
    pub(crate) fn decide(&mut self, now: Instant, asked: (Option<StopCause>, bool)) -> NextStep {
        let lease_ends = (self.bounds.lease_ends)();
        let last = lease_ends.and_then(|end| end.checked_sub(self.bounds.margin()));
        let (why, at_once) = asked;
        if let Some(kill_at) = self.kill_at {
            if matches!(why, Some(StopCause::LeaseLost(_))) {
                self.why = why;
            }
            let kill_at = if at_once {
                now
            } else {
                last.map_or(kill_at, |last| last.min(kill_at))
            };
            return self.kill_or_wait(now, kill_at);
        }
        let lease_stop =
            last.and_then(|last| last.checked_sub(self.bounds.grace_before_lease_end()));
        let timeout = self.bounds.timeout;
        let why = why
            .or_else(|| {
                timeout
                    .filter(|(at, _)| *at <= now)
                    .map(|(_, length)| StopCause::TimedOut(length))
            })
            .or_else(|| {
                lease_stop
                    .filter(|at| *at <= now)
                    .map(|_| StopCause::LeaseLost(LEASE_ENDS.into()))
            });
        let Some(why) = why else {
            let next = [timeout.map(|(at, _)| at), lease_stop]
                .into_iter()
                .flatten()
                .min();
            return NextStep::WaitUntil(next);
        };
        self.why = Some(why);
        let kill_at = now
            + if at_once {
                Duration::ZERO
            } else {
                self.bounds.grace
            };
        self.kill_at = Some(last.map_or(kill_at, |last| last.min(kill_at)));
        NextStep::Terminate
    }

    fn kill_or_wait(&mut self, now: Instant, kill_at: Instant) -> NextStep {
        if self.is_killed {
            return NextStep::WaitUntil(None);
        }
        if kill_at <= now {
            self.is_killed = true;
            return NextStep::Kill;
        }
        NextStep::WaitUntil(Some(kill_at))
    }
}

const LEASE_ENDS: &str = "the lease is about to expire and could not be renewed";

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(now: Instant, timeout: Option<u64>, lease_ends_in: Option<u64>) -> TimeBounds {
        let lease_ends = lease_ends_in.map(|s| now + Duration::from_secs(s));
        TimeBounds {
            timeout: timeout.map(|s| (now + Duration::from_secs(s), Duration::from_secs(s))),
            grace: Duration::from_secs(10),
            lease_for: Duration::from_secs(60),
            lease_ends: Box::new(move || lease_ends),
        }
    }

    fn later(now: Instant, seconds: u64) -> Instant {
        now + Duration::from_secs(seconds)
    }

    #[test]
    fn a_run_in_time_is_left_alone_until_the_nearest_bound() {
        let now = Instant::now();
        let mut stop_schedule = StopSchedule::new(bounds(now, Some(5), Some(60)));
        assert_eq!(
            stop_schedule.decide(now, (None, false)),
            NextStep::WaitUntil(Some(later(now, 5)))
        );
    }

    #[test]
    fn a_timeout_asks_first_and_kills_after_the_grace_period() {
        let now = Instant::now();
        let mut stop_schedule = StopSchedule::new(bounds(now, Some(5), None));
        assert_eq!(
            stop_schedule.decide(later(now, 5), (None, false)),
            NextStep::Terminate
        );
        assert_eq!(
            stop_schedule.decide(later(now, 6), (None, false)),
            NextStep::WaitUntil(Some(later(now, 15)))
        );
        assert_eq!(
            stop_schedule.decide(later(now, 15), (None, false)),
            NextStep::Kill
        );
        assert_eq!(
            stop_schedule.decide(later(now, 16), (None, false)),
            NextStep::WaitUntil(None)
        );
        assert!(matches!(stop_schedule.why(), Some(StopCause::TimedOut(_))));
    }

    #[test]
    fn rel_l8_everything_is_dead_before_an_unrenewed_lease_ends() {
        let now = Instant::now();
        let mut stop_schedule = StopSchedule::new(bounds(now, None, Some(60)));
        // 60 s minus a margin of 1.25 s, minus the grace period of 10 s.
        assert!(matches!(
            stop_schedule.decide(later(now, 48), (None, false)),
            NextStep::WaitUntil(Some(_))
        ));
        assert_eq!(
            stop_schedule.decide(later(now, 49), (None, false)),
            NextStep::Terminate
        );
        assert_eq!(
            stop_schedule.decide(later(now, 59), (None, false)),
            NextStep::Kill
        );
        assert!(matches!(stop_schedule.why(), Some(StopCause::LeaseLost(_))));
    }

    #[test]
    fn a_second_signal_ends_the_grace_period() {
        let now = Instant::now();
        let mut stop_schedule = StopSchedule::new(bounds(now, None, None));
        assert_eq!(
            stop_schedule.decide(now, (Some(StopCause::Interrupted), false)),
            NextStep::Terminate
        );
        assert_eq!(
            stop_schedule.decide(now, (Some(StopCause::Interrupted), true)),
            NextStep::Kill
        );
    }

    #[test]
    fn a_lease_lost_while_stopping_drops_the_outcome() {
        let now = Instant::now();
        let mut stop_schedule = StopSchedule::new(bounds(now, Some(1), None));
        stop_schedule.decide(later(now, 1), (None, false));
        stop_schedule.decide(
            later(now, 2),
            (Some(StopCause::LeaseLost("cancelled".into())), false),
        );
        assert_eq!(
            stop_schedule.why(),
            Some(&StopCause::LeaseLost("cancelled".into()))
        );
    }
}
