//! The messages to a shard's thread.
//!
//! A channel of the standard library wakes a sleeping reader while it holds a lock that the reader needs next. The thread
//! of a shard then sleeps and is woken a second time, which a job alone waits for. Here the senders wake it with no lock.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Creates the two ends of an inbox.
pub(crate) fn inbox<M>() -> (InboxSender<M>, Inbox<M>) {
    let (out, messages) = channel();
    let reader = Arc::new(Reader::default());
    let sender = InboxSender {
        messages: out,
        reader: Arc::clone(&reader),
    };
    (sender, Inbox { messages, reader })
}

/// The thread that reads an inbox.
#[derive(Default)]
struct Reader {
    /// The thread, since it waited for the first time.
    thread: OnceLock<Thread>,
    /// Whether the thread sleeps, or is about to.
    is_asleep: AtomicBool,
}

/// The end of an inbox to which messages are sent.
pub(crate) struct InboxSender<M> {
    messages: Sender<M>,
    reader: Arc<Reader>,
}

impl<M> Clone for InboxSender<M> {
    fn clone(&self) -> Self {
        Self {
            messages: self.messages.clone(),
            reader: Arc::clone(&self.reader),
        }
    }
}

/// The reader of an inbox has ended.
#[derive(Debug)]
pub(crate) struct InboxClosed;

impl<M> InboxSender<M> {
    /// Sends a message.
    ///
    /// # Errors
    /// If the reader has ended.
    pub(crate) fn send(&self, message: M) -> Result<(), InboxClosed> {
        self.messages.send(message).map_err(|_| InboxClosed)?;
        // Either this sees that the reader is about to sleep, or the reader sees the message when it looks again.
        fence(Ordering::SeqCst);
        if self.reader.is_asleep.load(Ordering::Relaxed)
            && self.reader.is_asleep.swap(false, Ordering::Relaxed)
            && let Some(thread) = self.reader.thread.get()
        {
            thread.unpark();
        }
        Ok(())
    }
}

/// The end of an inbox from which one thread reads. That thread keeps an [`InboxSender`] too, so there is always one.
pub(crate) struct Inbox<M> {
    messages: Receiver<M>,
    reader: Arc<Reader>,
}

impl<M> Inbox<M> {
    /// Returns the next message; `None` if there is none now.
    pub(crate) fn take(&self) -> Option<M> {
        self.messages.try_recv().ok()
    }

    /// Waits for the next message, at most for a time; `None` if none came.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> Option<M> {
        if let Some(message) = self.take() {
            return Some(message);
        }
        let until = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        self.reader.thread.get_or_init(thread::current);
        loop {
            self.reader.is_asleep.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let message = self.take();
            if message.is_some() || left.is_some_and(|left| left.is_zero()) {
                self.reader.is_asleep.store(false, Ordering::Relaxed);
                return message;
            }
            match left {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_missed_by_a_reader_that_falls_asleep() {
        const SENDERS: usize = 3;
        const MESSAGES: usize = 20_000;
        let (sender, inbox) = inbox();
        let senders: Vec<_> = (0..SENDERS)
            .map(|number| {
                let sender = sender.clone();
                thread::spawn(move || {
                    for message in 0..MESSAGES {
                        sender.send((number, message)).expect("it is read");
                        if message % 7 == number {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = [0; SENDERS];
        for received in 0..SENDERS * MESSAGES {
            let at_most = (received % 2 == 0).then_some(Duration::from_secs(60));
            let (number, message) = inbox.wait(at_most).expect("a message comes");
            assert_eq!(
                message, next[number],
                "messages of a sender keep their order"
            );
            next[number] += 1;
        }
        for sender in senders {
            sender.join().expect("it has sent all");
        }
        assert_eq!(inbox.take(), None);
        assert_eq!(inbox.wait(Some(Duration::from_millis(1))), None);
    }

    #[test]
    fn a_sender_hears_that_the_reader_has_ended() {
        let (sender, inbox) = inbox();
        drop(inbox);
        assert!(sender.send(7).is_err());
    }
}
