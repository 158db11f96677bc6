//! Publish and subscribe: who listens to which channel, and what waits for each.
//!
//! Nothing here is kept: a message goes to those who listen at that moment. One that does not read is cut when too much
//! waits for it, and holds up nobody.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use ganger_access::{Hold, Identity};
use ganger_engine::Glob;
use ganger_types::Namespace;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::limits::{CHANNEL_BYTES_MAX, MAILBOX_BYTES_MAX};
use crate::rights::Right;
use crate::value::Value;

/// What weighs on memory beside a message's bytes.
const MESSAGE_BYTES: usize = 128;

/// Who listens to what.
#[derive(Default)]
pub struct Hub {
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    channels: HashMap<Bytes, BTreeMap<u64, Arc<Mailbox>>>,
    /// Shared with publishers, which compare outside of the lock.
    patterns: Arc<HashMap<Bytes, Pattern>>,
}

/// A pattern that somebody listens to.
#[derive(Clone)]
struct Pattern {
    glob: Arc<Glob>,
    mailboxes: BTreeMap<u64, Arc<Mailbox>>,
}

/// Where messages for a connection wait.
pub(crate) struct Mailbox {
    messages: Mutex<(VecDeque<Message>, usize)>,
    arrived: Notify,
    /// Token that ends the connection.
    cut: CancellationToken,
    /// Whether it was cut here.
    is_full: std::sync::atomic::AtomicBool,
    /// Whose it is: nobody hears what is published in a namespace that he may not read.
    identity: RwLock<Identity>,
    /// The memory of what waits, in the identity's share.
    memory: RwLock<Hold>,
}

/// A message for a subscriber.
pub(crate) struct Message {
    pattern: Option<Bytes>,
    channel: Bytes,
    payload: Bytes,
}

impl Message {
    /// About how much memory it takes while it waits.
    fn bytes(&self) -> usize {
        let pattern = self.pattern.as_ref().map_or(0, Bytes::len);
        MESSAGE_BYTES + pattern + self.channel.len() + self.payload.len()
    }

    /// As it is sent.
    pub(crate) fn push(self) -> Value {
        let (channel, payload) = (Value::Bulk(self.channel), Value::Bulk(self.payload));
        Value::Push(match self.pattern {
            None => vec![Value::word("message"), channel, payload],
            Some(pattern) => vec![
                Value::word("pmessage"),
                Value::Bulk(pattern),
                channel,
                payload,
            ],
        })
    }
}

impl Mailbox {
    pub(crate) fn new(cut: CancellationToken, memory: Hold) -> Arc<Self> {
        Arc::new(Self {
            messages: Mutex::default(),
            arrived: Notify::new(),
            cut,
            is_full: false.into(),
            identity: RwLock::new(Identity::Anonymous),
            memory: RwLock::new(memory),
        })
    }

    /// Goes on as somebody else's. What waits is counted for him from then on.
    pub(crate) fn set_identity(&self, identity: Identity, memory: Hold) {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        memory.grow_anyway(messages.1);
        *self.memory.write().unwrap_or_else(PoisonError::into_inner) = memory;
        drop(messages);
        *self
            .identity
            .write()
            .unwrap_or_else(PoisonError::into_inner) = identity;
    }

    /// Takes all that waits.
    pub(crate) fn take(&self) -> VecDeque<Message> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = std::mem::take(&mut messages.1);
        if bytes > 0 {
            self.memory().shrink(bytes);
        }
        std::mem::take(&mut messages.0)
    }

    /// Waits for a message to arrive.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Whether the connection was cut because too much waited.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn memory(&self) -> std::sync::RwLockReadGuard<'_, Hold> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its owner may read what is published there.
    fn may_read(&self, namespace: &Namespace) -> bool {
        let identity = self.identity.read().unwrap_or_else(PoisonError::into_inner);
        Right::Read.is_held(&identity, namespace)
    }

    /// Puts a message in, or cuts the connection if too much waits.
    fn deliver(&self, message: Message) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = message.bytes();
        if messages.1 + bytes > MAILBOX_BYTES_MAX || self.memory().grow(bytes).is_err() {
            messages.0.clear();
            self.memory().shrink(std::mem::take(&mut messages.1));
            self.is_full
                .store(true, std::sync::atomic::Ordering::Relaxed);
            self.cut.cancel();
            return;
        }
        messages.1 += bytes;
        messages.0.push_back(message);
        drop(messages);
        self.arrived.notify_one();
    }
}

impl Hub {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message to those who listen and may read in the namespace: how many times. Nobody listens to a channel
    /// whose name is too long.
    pub fn publish(&self, namespace: &Namespace, channel: &Bytes, payload: &Bytes) -> u64 {
        if channel.len() > CHANNEL_BYTES_MAX {
            return 0;
        }
        let (listening, patterns) = {
            let listeners = self.listeners();
            let listening = listeners.channels.get(channel);
            let listening = listening.into_iter().flat_map(BTreeMap::values).cloned();
            (
                listening.collect::<Vec<_>>(),
                Arc::clone(&listeners.patterns),
            )
        };
        let mut count = 0;
        let mut send = |mailbox: &Mailbox, pattern: Option<&Bytes>| {
            mailbox.deliver(Message {
                pattern: pattern.cloned(),
                channel: channel.clone(),
                payload: payload.clone(),
            });
            count += 1;
        };
        for mailbox in listening {
            if mailbox.may_read(namespace) {
                send(&mailbox, None);
            }
        }
        for (name, pattern) in &*patterns {
            // Who may not read there costs no comparison.
            let mut readers = pattern.mailboxes.values();
            let mut readers = readers
                .by_ref()
                .filter(|mailbox| mailbox.may_read(namespace));
            let Some(first) = readers.next().filter(|_| pattern.glob.matches(channel)) else {
                continue;
            };
            send(first, Some(name));
            readers.for_each(|mailbox| send(mailbox, Some(name)));
        }
        count
    }

    /// Begins to listen to a channel.
    pub(crate) fn subscribe(&self, name: &Bytes, id: u64, mailbox: &Arc<Mailbox>) {
        let mut listeners = self.listeners();
        let of = listeners.channels.entry(name.clone()).or_default();
        of.insert(id, Arc::clone(mailbox));
    }

    /// Begins to listen to a pattern, which is compiled.
    pub(crate) fn subscribe_to_pattern(
        &self,
        name: &Bytes,
        glob: Glob,
        id: u64,
        mailbox: &Arc<Mailbox>,
    ) {
        let mut listeners = self.listeners();
        let patterns = Arc::make_mut(&mut listeners.patterns);
        let pattern = patterns.entry(name.clone()).or_insert_with(|| Pattern {
            glob: Arc::new(glob),
            mailboxes: BTreeMap::new(),
        });
        pattern.mailboxes.insert(id, Arc::clone(mailbox));
    }

    /// Ends listening to a channel or a pattern.
    pub(crate) fn unsubscribe(&self, is_pattern: bool, name: &Bytes, id: u64) {
        let mut listeners = self.listeners();
        if is_pattern {
            let patterns = Arc::make_mut(&mut listeners.patterns);
            if let Some(pattern) = patterns.get_mut(name) {
                pattern.mailboxes.remove(&id);
                if pattern.mailboxes.is_empty() {
                    patterns.remove(name);
                }
            }
        } else if let Some(mailboxes) = listeners.channels.get_mut(name) {
            mailboxes.remove(&id);
            if mailboxes.is_empty() {
                listeners.channels.remove(name);
            }
        }
    }

    /// Channels that somebody listens to, those that match a pattern if there is one.
    pub(crate) fn channels(&self, glob: Option<&Glob>) -> Vec<Bytes> {
        let mut names: Vec<_> = self.listeners().channels.keys().cloned().collect();
        names.retain(|name| glob.is_none_or(|glob| glob.matches(name)));
        names.sort_unstable();
        names
    }

    /// How many channels somebody listens to.
    pub(crate) fn channels_count(&self) -> usize {
        self.listeners().channels.len()
    }

    /// How many listen to a channel.
    pub(crate) fn count(&self, channel: &Bytes) -> usize {
        self.listeners()
            .channels
            .get(channel)
            .map_or(0, BTreeMap::len)
    }

    /// How many patterns somebody listens to.
    pub(crate) fn patterns_count(&self) -> usize {
        self.listeners().patterns.len()
    }
}
