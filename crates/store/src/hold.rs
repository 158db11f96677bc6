//! Why a store confirms nothing for now, although it will later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What holds up the commits of a store, for any thread. Clones share it. Looking while nothing does costs one load.
#[derive(Clone, Debug, Default)]
pub struct StoreHold(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_set: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    reason: Option<String>,
    /// Time since which commits are held up; `None` if they are not.
    since: Option<Instant>,
    /// Time of the holds that have ended.
    before: Duration,
}

impl StoreHold {
    /// Notes why commits wait. Returns whether that was not known before.
    pub fn set(&self, reason: &str) -> bool {
        let mut held = self.lock();
        held.reason = Some(reason.to_owned());
        held.since.get_or_insert_with(Instant::now);
        !self.0.is_set.swap(true, Ordering::Release)
    }

    /// Notes that a commit has ended. Returns whether commits were held up.
    pub fn clear(&self) -> bool {
        if !self.0.is_set.load(Ordering::Acquire) {
            return false;
        }
        let mut held = self.lock();
        held.reason = None;
        let since = held.since.take();
        held.before += since.map_or(Duration::ZERO, |since| since.elapsed());
        self.0.is_set.swap(false, Ordering::Release)
    }

    /// Why commits wait, with the next step; `None` if nothing is known to hold them up.
    pub fn reason(&self) -> Option<String> {
        if !self.0.is_set.load(Ordering::Acquire) {
            return None;
        }
        self.lock().reason.clone()
    }

    /// For how long commits were held up, all holds together, the present one too.
    pub fn total(&self) -> Duration {
        let held = self.lock();
        held.before + held.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_a_store_up_is_known_to_all_until_a_commit_ends() {
        let hold = StoreHold::default();
        let reader = hold.clone();
        assert_eq!(reader.reason(), None);
        assert!(hold.set("no standby"));
        assert!(!hold.set("still no standby"), "it was known");
        assert_eq!(reader.reason().as_deref(), Some("still no standby"));
        assert!(hold.clear());
        assert!(!hold.clear());
        let total = reader.total();
        assert!(total > Duration::ZERO, "it was held up");
        assert_eq!(reader.total(), total, "and is not any more");
        assert_eq!(reader.reason(), None);
    }
}
