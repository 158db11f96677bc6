//! Failed logins by address: each further wrong token is answered later (`rel S13`).
//!
//! A right token is never delayed, whatever other clients behind the same address do: it cannot be guessed, and a
//! gateway with one misconfigured client must not lock out the rest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ganger_access::address_group;

/// Delay after the first wrong token; each further one doubles it.
const DELAY_FIRST: Duration = Duration::from_millis(250);
/// Longest delay of an answer.
const DELAY_MAX: Duration = Duration::from_secs(15);
/// Time after which an address without a wrong token starts again.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Maximum number of delayed answers of one address; more tokens are refused unchecked.
const WAITING_MAX: u32 = 64;
/// Maximum number of addresses; beyond it those that have been quiet for longest are forgotten.
const ADDRESSES_MAX: usize = 10_000;

/// Failed logins by address.
#[derive(Default)]
pub(crate) struct LoginAttempts(Mutex<HashMap<IpAddr, Failures>>);

struct Failures {
    count: u32,
    waiting: u32,
    last: Instant,
}

impl LoginAttempts {
    /// Records a wrong token; returns the delay of its answer, or `None` if too many wait already. Each delay must be
    /// ended with [`Self::answered`].
    pub(crate) fn failed(&self, from: IpAddr, now: Instant) -> Option<Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ADDRESSES_MAX {
            make_room(&mut all, now);
        }
        let failures = all.entry(address_group(from)).or_insert(Failures {
            count: 0,
            waiting: 0,
            last: now,
        });
        if now.duration_since(failures.last) >= FORGET_AFTER {
            failures.count = 0;
        }
        failures.last = now;
        if failures.waiting >= WAITING_MAX {
            return None;
        }
        failures.waiting += 1;
        failures.count = failures.count.saturating_add(1);
        let doublings = (failures.count - 1).min(16);
        Some((DELAY_FIRST * (1 << doublings)).min(DELAY_MAX))
    }

    /// Records that a wrong token has been answered.
    pub(crate) fn answered(&self, from: IpAddr) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failures) = all.get_mut(&address_group(from)) {
            failures.waiting = failures.waiting.saturating_sub(1);
        }
    }
}

fn make_room(all: &mut HashMap<IpAddr, Failures>, now: Instant) {
    all.retain(|_, it| it.waiting > 0 || now.duration_since(it.last) < FORGET_AFTER);
    if all.len() < ADDRESSES_MAX {
        return;
    }
    let oldest = all
        .iter()
        .filter(|(_, it)| it.waiting == 0)
        .min_by_key(|(_, it)| it.last)
        .map(|(address, _)| *address);
    if let Some(oldest) = oldest {
        all.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_wrong_token_is_delayed_longer_up_to_a_limit_and_forgotten_after_a_while() {
        let attempts = LoginAttempts::default();
        let now = Instant::now();
        let delay = |at| {
            let delay = attempts.failed(ip("10.0.0.1"), at).expect("few wait");
            attempts.answered(ip("10.0.0.1"));
            delay
        };
        assert_eq!(delay(now), DELAY_FIRST);
        assert_eq!(delay(now), DELAY_FIRST * 2);
        assert_eq!(delay(now), DELAY_FIRST * 4);
        for _ in 0..100 {
            delay(now);
        }
        assert_eq!(delay(now), DELAY_MAX);
        assert_eq!(delay(now + FORGET_AFTER), DELAY_FIRST);
        let other = attempts.failed(ip("10.0.0.2"), now).expect("few wait");
        assert_eq!(other, DELAY_FIRST, "another address begins again");
    }

    #[test]
    fn too_many_wrong_tokens_at_once_are_refused_unchecked() {
        let attempts = LoginAttempts::default();
        let now = Instant::now();
        for _ in 0..WAITING_MAX {
            assert!(attempts.failed(ip("10.0.0.1"), now).is_some());
        }
        assert_eq!(attempts.failed(ip("10.0.0.1"), now), None);
        attempts.answered(ip("10.0.0.1"));
        assert!(attempts.failed(ip("10.0.0.1"), now).is_some());
    }

    #[test]
    fn memory_is_bounded_whatever_addresses_fail() {
        let attempts = LoginAttempts::default();
        let now = Instant::now();
        for number in 0..u32::try_from(ADDRESSES_MAX).expect("small") + 100 {
            let address = IpAddr::V4(std::net::Ipv4Addr::from(number));
            attempts.failed(address, now);
            attempts.answered(address);
        }
        let all = attempts.0.lock().expect("no panic");
        assert!(all.len() <= ADDRESSES_MAX);
    }
}
