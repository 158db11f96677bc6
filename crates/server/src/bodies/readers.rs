//! Cuts responses whose client has stopped reading. Over HTTP/2 the transport does not notice, because the connection
//! continues.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::response_body::CutSlot;

/// Longest interval between two checks.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The responses being read. Clones share them.
#[derive(Clone)]
pub(crate) struct UnreadResponses {
    slots: Arc<Mutex<Vec<Weak<CutSlot>>>>,
    timeout: Duration,
}

impl UnreadResponses {
    /// Creates a list whose responses are cut when nothing is read for `timeout`.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            slots: Arc::default(),
            timeout,
        }
    }

    /// Adds a response whose reader is watched.
    pub(super) fn watch(&self, slot: &Arc<CutSlot>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push(Arc::downgrade(slot));
    }

    /// Cuts unread responses, until `stopping`.
    pub(crate) async fn cut_unread(self, stopping: CancellationToken) {
        let every = (self.timeout / 4).clamp(Duration::from_millis(10), CHECK_INTERVAL_MAX);
        let mut ticks = tokio::time::interval(every);
        while stopping.run_until_cancelled(ticks.tick()).await.is_some() {
            self.look();
        }
    }

    fn look(&self) {
        let watched = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *slots)
        };
        let mut left = Vec::with_capacity(watched.len());
        for slot in watched {
            if let Some(read) = slot.upgrade() {
                read.cut_if_unread(self.timeout);
                left.push(slot);
            }
        }
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.append(&mut left);
    }
}
