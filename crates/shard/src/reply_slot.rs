//! A place for one reply, filled by the shard thread and emptied by the task that called.
//!
//! Unlike a one-shot channel, [`Answer::send`] does not wake the task: it returns a [`Wake`], which does so when it is
//! dropped. The shard drops those of a turn after it has sent all replies, so a task with several requests in a turn
//! is woken once and finds all of them answered.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Creates a place for one reply.
pub(crate) fn reply_slot<T>() -> (Answer<T>, Answered<T>) {
    let slot = Arc::new(Slot(Mutex::new(SlotState::Empty(None))));
    (Answer(Some(Arc::clone(&slot))), Answered(slot))
}

struct Slot<T>(Mutex<SlotState<T>>);

enum SlotState<T> {
    /// There is no reply yet, and perhaps a task that waits for it.
    Empty(Option<Waker>),
    /// The reply is there.
    Filled(T),
    /// There will be no reply: it was taken, nobody waits for it, or the shard has ended.
    Closed,
}

impl<T> Slot<T> {
    fn state(&self) -> MutexGuard<'_, SlotState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shard's half. If it is dropped without a reply, the task learns that there will be none.
pub(crate) struct Answer<T>(Option<Arc<Slot<T>>>);

/// Wakes the task that a reply is for, when it is dropped.
#[must_use = "the task is woken when this is dropped"]
pub(crate) struct Wake(Option<Waker>);

impl Drop for Wake {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

impl<T> Answer<T> {
    /// Whether nobody waits for the reply any more.
    pub(crate) fn is_closed(&self) -> bool {
        let slot = self.0.as_ref();
        slot.is_none_or(|slot| matches!(*slot.state(), SlotState::Closed))
    }

    /// Sends the reply.
    ///
    /// # Errors
    /// The reply, if nobody waits for it any more.
    pub(crate) fn send(mut self, reply: T) -> Result<Wake, T> {
        let Some(slot) = self.0.take() else {
            return Err(reply);
        };
        let mut state = slot.state();
        match std::mem::replace(&mut *state, SlotState::Closed) {
            SlotState::Empty(waker) => {
                *state = SlotState::Filled(reply);
                Ok(Wake(waker))
            }
            SlotState::Filled(_) | SlotState::Closed => Err(reply),
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        let Some(slot) = self.0.take() else {
            return;
        };
        let state = std::mem::replace(&mut *slot.state(), SlotState::Closed);
        if let SlotState::Empty(Some(waker)) = state {
            waker.wake();
        }
    }
}

/// The caller's half: completes with the reply, or with `None` if the shard has ended without one. If it is dropped
/// before, the shard sees that nobody waits, and a reply that is there is dropped.
pub(crate) struct Answered<T>(Arc<Slot<T>>);

impl<T> Future for Answered<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.state();
        match std::mem::replace(&mut *state, SlotState::Closed) {
            SlotState::Filled(reply) => Poll::Ready(Some(reply)),
            SlotState::Closed => Poll::Ready(None),
            SlotState::Empty(known) => {
                let is_same = known
                    .as_ref()
                    .is_some_and(|known| known.will_wake(cx.waker()));
                let (current, replaced) = match known {
                    Some(known) if is_same => (known, None),
                    known => (cx.waker().clone(), known),
                };
                *state = SlotState::Empty(Some(current));
                // Dropping the waker of another task may end that task: not under the lock.
                drop(state);
                drop(replaced);
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Answered<T> {
    fn drop(&mut self) {
        // A reply may send a message when it is dropped: not under the lock.
        let unread = std::mem::replace(&mut *self.0.state(), SlotState::Closed);
        drop(unread);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake as TaskWake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl TaskWake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll<T>(answered: &mut Answered<T>, woken: &Arc<Woken>) -> Poll<Option<T>> {
        let waker = Waker::from(Arc::clone(woken));
        Pin::new(answered).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn a_task_is_woken_after_all_replies_are_there() {
        let woken = Arc::new(Woken::default());
        let (first, mut first_reply) = reply_slot();
        let (second, mut second_reply) = reply_slot();
        assert!(poll(&mut first_reply, &woken).is_pending());
        assert!(poll(&mut second_reply, &woken).is_pending());
        let wakes = [first.send(1).ok(), second.send(2).ok()];
        assert_eq!(woken.0.load(Ordering::Relaxed), 0, "not before the end");
        drop(wakes);
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert_eq!(poll(&mut first_reply, &woken), Poll::Ready(Some(1)));
        assert_eq!(poll(&mut second_reply, &woken), Poll::Ready(Some(2)));
        assert_eq!(poll(&mut second_reply, &woken), Poll::Ready(None));
    }

    #[test]
    fn each_half_learns_that_the_other_has_gone() {
        let woken = Arc::new(Woken::default());
        let (answer, mut answered) = reply_slot::<u8>();
        assert!(poll(&mut answered, &woken).is_pending());
        drop(answer);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut answered, &woken), Poll::Ready(None));
        let (answer, answered) = reply_slot::<u8>();
        assert!(!answer.is_closed());
        drop(answered);
        assert!(answer.is_closed());
        assert_eq!(answer.send(1).err(), Some(1));
    }

    #[test]
    fn a_reply_that_nobody_takes_is_dropped() {
        let reply = Arc::new(());
        let (answer, answered) = reply_slot();
        drop(answer.send(Arc::clone(&reply)).ok());
        assert_eq!(Arc::strong_count(&reply), 2);
        drop(answered);
        assert_eq!(Arc::strong_count(&reply), 1);
    }
}
