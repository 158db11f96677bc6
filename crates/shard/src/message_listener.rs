//! Passes the messages of external systems to one listener.

use std::sync::{Arc, Mutex, PoisonError};

use ganger_types::ExternalMessage;

/// Receives the messages of one durable turn, in order, each with the namespace of the call that caused it.
pub type Listener = Arc<dyn Fn(&[ExternalMessage]) + Send + Sync>;

/// A listener, if there is one.
#[derive(Default)]
pub(crate) struct MessageListener {
    listener: Mutex<Option<Listener>>,
}

impl MessageListener {
    /// Sets the listener, replacing the earlier one.
    pub(crate) fn listen(&self, listener: Listener) {
        let mut place = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(listener);
    }

    /// Passes the messages of a turn to the listener. The lock is not held during the call.
    pub(crate) fn notify(&self, messages: &[ExternalMessage]) {
        let place = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = place.clone();
        drop(place);
        if let Some(listener) = listener {
            listener(messages);
        }
    }
}
