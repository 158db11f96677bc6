//! Publish and subscribe: subscribers of channels and patterns, and their waiting messages.
//!
//! Nothing is stored: a message goes to the present subscribers. A subscriber that does not read is cut when too many
//! bytes wait for it, so it never blocks others.

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

/// Memory of a message besides its bytes.
const MESSAGE_BYTES: usize = 128;

/// The subscribers of all channels and patterns.
#[derive(Default)]
pub struct Hub {
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    channels: HashMap<Bytes, BTreeMap<u64, Arc<Mailbox>>>,
    /// Shared with publishers, which compare without holding the lock.
    patterns: Arc<HashMap<Bytes, Pattern>>,
}

/// A pattern with subscribers.
#[derive(Clone)]
struct Pattern {
    glob: Arc<Glob>,
    mailboxes: BTreeMap<u64, Arc<Mailbox>>,
}

/// The queue of messages for a connection.
pub(crate) struct Mailbox {
    messages: Mutex<(VecDeque<Message>, usize)>,
    arrived: Notify,
    /// Token that ends the connection.
    cut: CancellationToken,
    /// Whether the connection was cut because too many bytes waited.
    is_full: std::sync::atomic::AtomicBool,
    /// Identity of the subscriber, who gets only messages from namespaces that the identity may read.
    identity: RwLock<Identity>,
    /// Memory of the waiting messages, in the identity's share of the budget.
    memory: RwLock<Hold>,
}

/// A message for a subscriber.
pub(crate) struct Message {
    pattern: Option<Bytes>,
    channel: Bytes,
    payload: Bytes,
}

impl Message {
    /// Approximate size in memory, in bytes.
    fn bytes(&self) -> usize {
        let pattern = self.pattern.as_ref().map_or(0, Bytes::len);
        MESSAGE_BYTES + pattern + self.channel.len() + self.payload.len()
    }

    /// The message as a reply.
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

    /// Changes the identity. Waiting messages count in its share from then on.
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

    /// Takes all waiting messages.
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

    /// Whether the connection was cut because too many bytes waited.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn memory(&self) -> std::sync::RwLockReadGuard<'_, Hold> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the subscriber may read messages from a namespace.
    fn may_read(&self, namespace: &Namespace) -> bool {
        let identity = self.identity.read().unwrap_or_else(PoisonError::into_inner);
        Right::Read.is_held(&identity, namespace)
    }

    /// Adds a message, or cuts the connection if too many bytes wait.
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

    /// Sends a message to the subscribers that may read the namespace, and returns how often it was sent. A channel
    /// whose name is too long has no subscribers.
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
            // Skip the comparison if no subscriber may read the namespace.
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

    /// Subscribes to a channel.
    pub(crate) fn subscribe(&self, name: &Bytes, id: u64, mailbox: &Arc<Mailbox>) {
        let mut listeners = self.listeners();
        let of = listeners.channels.entry(name.clone()).or_default();
        of.insert(id, Arc::clone(mailbox));
    }

    /// Subscribes to a compiled pattern.
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

    /// Ends the subscription to a channel or a pattern.
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

    /// The channels with subscribers, or those of them that match a pattern.
    pub(crate) fn channels(&self, glob: Option<&Glob>) -> Vec<Bytes> {
        let mut names: Vec<_> = self.listeners().channels.keys().cloned().collect();
        names.retain(|name| glob.is_none_or(|glob| glob.matches(name)));
        names.sort_unstable();
        names
    }

    /// The number of channels with subscribers.
    pub(crate) fn channels_count(&self) -> usize {
        self.listeners().channels.len()
    }

    /// The number of subscribers of a channel.
    pub(crate) fn count(&self, channel: &Bytes) -> usize {
        self.listeners()
            .channels
            .get(channel)
            .map_or(0, BTreeMap::len)
    }

    /// The number of patterns with subscribers.
    pub(crate) fn patterns_count(&self) -> usize {
        self.listeners().patterns.len()
    }
}
