//! Readers that stop reading: over HTTP/2 the transport does not notice, because the connection goes on.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::response_body::CutSlot;

/// Between two looks at most.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The answers that are being read. Clones share them.
#[derive(Clone)]
pub(crate) struct UnreadResponses {
    slots: Arc<Mutex<Vec<Weak<CutSlot>>>>,
    timeout: Duration,
}

impl UnreadResponses {
    /// Answers of which nothing is read for `timeout` are cut.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            slots: Arc::default(),
            timeout,
        }
    }

    /// Adds an answer to those that are cut when nothing is read of them.
    pub(super) fn watch(&self, slot: &Arc<CutSlot>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push(Arc::downgrade(slot));
    }

    /// Cuts what is not read, until `stopping`.
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
