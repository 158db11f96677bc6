//! Notices that the process, or the whole machine, stood still.

use std::time::Duration;

/// Time by which a thread may wake too late without having been paused: a busy machine does that too.
const LATE_MAX: Duration = Duration::from_secs(2);

/// Compares when a thread came round with when it wanted to.
#[derive(Debug, Default)]
pub struct PauseWatch {
    /// Time until which the thread wanted to sleep at most; `None` if it may sleep as long as it likes, or if its clock
    /// is moved by hand.
    expected: Option<Duration>,
}

impl PauseWatch {
    /// Notes at `now` that the thread goes to sleep for at most this long; `None` for any time.
    pub fn sleep(&mut self, now: Duration, at_most: Option<Duration>) {
        self.expected = at_most.and_then(|time| now.checked_add(time));
    }

    /// Notes at `now` that the thread has come round. Returns by how much it is late, if it was paused.
    pub fn wake(&mut self, now: Duration) -> Option<Duration> {
        let expected = self.expected.replace(now)?;
        let late = now.saturating_sub(expected);
        (late > LATE_MAX).then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_thread_that_wakes_much_too_late_was_paused() {
        let mut watch = PauseWatch::default();
        assert_eq!(watch.wake(SECOND), None);
        watch.sleep(SECOND, Some(SECOND));
        assert_eq!(watch.wake(SECOND * 4), None, "a busy machine is that late");
        watch.sleep(SECOND * 4, Some(SECOND));
        assert_eq!(watch.wake(SECOND * 9), Some(SECOND * 4));
        // What it does itself counts too: a write may take that long.
        assert_eq!(watch.wake(SECOND * 12), Some(SECOND * 3));
    }

    #[test]
    fn a_thread_that_may_sleep_as_long_as_it_likes_is_never_late() {
        let mut watch = PauseWatch::default();
        for at_most in [None, Some(Duration::MAX)] {
            watch.wake(SECOND);
            watch.sleep(SECOND, at_most);
            assert_eq!(watch.wake(SECOND * 1_000), None);
        }
    }
}
