//! Why a store confirms nothing for now, although it will later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What holds up the commits of a store, for any thread. Clones share it. Looking while nothing does costs one load.
#[derive(Clone, Debug, Default)]
pub struct StoreHold(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_set: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl StoreHold {
    /// Notes why commits wait. Returns whether that was not known before.
    pub fn set(&self, reason: &str) -> bool {
        *self.lock() = Some(reason.to_owned());
        !self.0.is_set.swap(true, Ordering::Release)
    }

    /// Notes that a commit has ended. Returns whether commits were held up.
    pub fn clear(&self) -> bool {
        if !self.0.is_set.load(Ordering::Acquire) {
            return false;
        }
        *self.lock() = None;
        self.0.is_set.swap(false, Ordering::Release)
    }

    /// Why commits wait, with the next step; `None` if nothing is known to hold them up.
    pub fn reason(&self) -> Option<String> {
        if !self.0.is_set.load(Ordering::Acquire) {
            return None;
        }
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.0.reason.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(reader.reason(), None);
    }
}
