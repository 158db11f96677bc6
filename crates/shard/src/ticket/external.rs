//! Elements of lists on their way to their callers.

use ganger_types::{KeyWait, Popped};

use super::ThreadMessage;
use crate::core::{Request, UndeliveredElement};
use crate::inbox::InboxSender;

/// The request that took an element, so that it can be put back.
pub(crate) struct PopOrigin {
    pub(crate) home: InboxSender<ThreadMessage>,
    pub(crate) wait: KeyWait,
}

/// An element on its way to its caller. If it is dropped before it is taken out, it is put back.
pub(crate) struct UndeliveredPop {
    popped: Popped,
    origin: Box<PopOrigin>,
}

impl UndeliveredPop {
    pub(crate) fn new(popped: Popped, origin: Box<PopOrigin>) -> Self {
        Self { popped, origin }
    }

    pub(crate) fn open(mut self) -> Popped {
        std::mem::replace(&mut self.popped, Ok(None))
    }
}

impl Drop for UndeliveredPop {
    fn drop(&mut self) {
        let Ok(Some((list, value))) = std::mem::replace(&mut self.popped, Ok(None)) else {
            return;
        };
        let wait = self.origin.wait.clone();
        let unpopped = Box::new(UndeliveredElement { wait, list, value });
        // If the shard has ended, the element is where the store has it.
        drop(
            self.origin
                .home
                .send(ThreadMessage::Request(Request::ReturnElement(unpopped))),
        );
    }
}
