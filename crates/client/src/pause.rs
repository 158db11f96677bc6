//! Pauses between retries: doubling, jittered, limited in length and in sum.

use std::time::{Duration, Instant};

use crate::Retry;

/// The pauses of one call.
pub(crate) struct Pauses {
    retry: Retry,
    next: Duration,
    until: Instant,
}

impl Pauses {
    pub(crate) fn new(retry: Retry) -> Self {
        Self {
            retry,
            next: retry.pause_first,
            until: Instant::now() + retry.total_max,
        }
    }

    /// Returns the next pause, at least as long as the server `asked` for; `None` once the total is used up.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Option<Duration> {
        let pause = self.next_unbounded().max(asked.unwrap_or_default());
        (Instant::now() + pause < self.until).then_some(pause)
    }

    /// Returns the next pause regardless of the total.
    pub(crate) fn next_unbounded(&mut self) -> Duration {
        let pause = jittered(self.next);
        self.next = (self.next * 2).min(self.retry.pause_max);
        pause
    }
}

/// Returns a random time between half of `pause` and all of it, so that clients do not retry at the same time.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    let share = f64::from(random_u32()) / f64::from(u32::MAX);
    half + half.mul_f64(share)
}

fn random_u32() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}

/// Returns a unique key: 128 random bits as hexadecimal digits.
pub(crate) fn random_key() -> String {
    let mut raw = [0_u8; 16];
    getrandom::fill(&mut raw).expect("the system has random bytes");
    raw.iter()
        .fold(String::with_capacity(32), |mut text, byte| {
            use std::fmt::Write;
            write!(text, "{byte:02x}").expect("a string takes everything");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_their_limit() {
        let retry = Retry {
            pause_first: Duration::from_millis(10),
            pause_max: Duration::from_millis(30),
            total_max: Duration::from_secs(3600),
        };
        let mut pauses = Pauses::new(retry);
        for most in [10, 20, 30, 30] {
            let pause = pauses.next(None).expect("within the total");
            let most = Duration::from_millis(most);
            assert!(pause >= most / 2 && pause <= most, "{pause:?} of {most:?}");
        }
    }

    #[test]
    fn nothing_is_tried_again_beyond_the_total() {
        let retry = Retry {
            total_max: Duration::ZERO,
            ..Retry::default()
        };
        assert_eq!(Pauses::new(retry).next(None), None);
        let mut patient = Pauses::new(Retry::default());
        assert_eq!(patient.next(Some(Duration::from_secs(3600))), None);
    }
}
