//! Elements of lists: taken by callers, and put back if they cannot be passed on.

use std::time::Duration;

use ganger_types::{Bytes, KeyWait, Popped};

use crate::CallError;
use crate::core::{Request, UndeliveredElement};
use crate::handle::{CancelOnDrop, Handle};
use crate::reply_slot::reply_slot;
use crate::ticket::{PopOrigin, ReplyChannel};

impl Handle {
    /// Takes an element from the first of some lists that has one, waiting up to `wait_for`, or without limit.
    /// Dropping the future ends the wait; an element that was on its way is put back.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn pop(
        &self,
        wait: KeyWait,
        wait_for: Option<Duration>,
    ) -> Result<Popped, CallError> {
        let permit = self.shared.admission.enter_waiting()?;
        let waiter = self.new_waiter();
        let (answer, answered) = reply_slot();
        let origin = Box::new(PopOrigin {
            home: self.shared.inbox.clone(),
            wait: wait.clone(),
        });
        self.send(Request::Pop {
            wait: Box::new(wait),
            wait_for,
            waiter,
            ticket: ReplyChannel::Pop(answer, permit, origin),
        })?;
        let mut guard = CancelOnDrop {
            inbox: self.shared.inbox.clone(),
            waiter: Some(waiter),
        };
        let parcel = self.receive(answered).await;
        guard.waiter = None;
        Ok(parcel?.open())
    }

    /// Puts back an element from [`Self::pop`] that could not be passed on. It goes where it was next, unless it has
    /// left the list that it was moved to.
    pub fn put_back(&self, wait: KeyWait, list: Bytes, value: Bytes) {
        let unpopped = UndeliveredElement { wait, list, value };
        // If the shard has ended, the element is where the store has it.
        drop(self.send(Request::ReturnElement(Box::new(unpopped))));
    }
}
