//! Bounds the requests of one session or address.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests of one party in a second.
const REQUESTS_PER_SECOND: u32 = 50;
/// Parties that are remembered. Beyond it all are forgotten, which is harmless: each may send so many again.
const PARTIES_MAX: usize = 10_000;

/// Counts requests, a second at a time.
#[derive(Default)]
pub(crate) struct Pace(Mutex<HashMap<String, (Instant, u32)>>);

impl Pace {
    /// Whether a party may send a request now.
    pub(crate) fn allows(&self, party: &str, now: Instant) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PARTIES_MAX && !all.contains_key(party) {
            all.clear();
        }
        let entry = all.entry(party.to_owned()).or_insert((now, 0));
        if now.duration_since(entry.0) >= Duration::from_secs(1) {
            *entry = (now, 0);
        }
        entry.1 += 1;
        entry.1 <= REQUESTS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_gets_fifty_requests_a_second_whatever_others_send() {
        let pace = Pace::default();
        let now = Instant::now();
        assert!((0..50).all(|_| pace.allows("a", now)));
        assert!(!pace.allows("a", now));
        assert!(pace.allows("b", now));
        assert!(pace.allows("a", now + Duration::from_secs(1)));
    }
}
