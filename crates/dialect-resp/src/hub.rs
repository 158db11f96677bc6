//! Publish and subscribe: who listens to which channel, and what waits for each.
//!
//! Nothing here is kept: a message goes to those who listen at that moment. One that does not read is cut when too much
//! waits for it, and holds up nobody.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use ganger_access::Identity;
use ganger_engine::glob_matches;
use ganger_types::Namespace;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::limits::MAILBOX_BYTES_MAX;
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
    patterns: HashMap<Bytes, BTreeMap<u64, Arc<Mailbox>>>,
}

/// Where messages for a connection wait.
pub(crate) struct Mailbox {
    messages: Mutex<(VecDeque<Message>, usize)>,
    arrived: Notify,
    /// Ends the connection.
    cut: CancellationToken,
    /// Whether it was cut here.
    is_full: std::sync::atomic::AtomicBool,
    /// Whose it is: nobody hears what is published in a namespace that he may not read.
    identity: RwLock<Identity>,
}

/// A message for a subscriber.
pub(crate) struct Message {
    pattern: Option<Bytes>,
    channel: Bytes,
    payload: Bytes,
}

impl Message {
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
    pub(crate) fn new(cut: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            messages: Mutex::default(),
            arrived: Notify::new(),
            cut,
            is_full: false.into(),
            identity: RwLock::new(Identity::Anonymous),
        })
    }

    pub(crate) fn set_identity(&self, identity: Identity) {
        *self
            .identity
            .write()
            .unwrap_or_else(PoisonError::into_inner) = identity;
    }

    /// Takes all that waits.
    pub(crate) fn take(&self) -> VecDeque<Message> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.1 = 0;
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

    /// Whether it was delivered: not to one who may not read there.
    fn deliver(&self, namespace: &Namespace, message: Message) -> bool {
        {
            let identity = self.identity.read().unwrap_or_else(PoisonError::into_inner);
            if !Right::Read.is_held(&identity, namespace) {
                return false;
            }
        }
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.1 += MESSAGE_BYTES + message.payload.len();
        if messages.1 > MAILBOX_BYTES_MAX {
            messages.0.clear();
            self.is_full
                .store(true, std::sync::atomic::Ordering::Relaxed);
            self.cut.cancel();
            return true;
        }
        messages.0.push_back(message);
        drop(messages);
        self.arrived.notify_one();
        true
    }
}

impl Hub {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message to those who listen and may read in the namespace: how many times.
    pub fn publish(&self, namespace: &Namespace, channel: &Bytes, payload: &Bytes) -> u64 {
        let listeners = self.listeners();
        let mut count = 0;
        let mut send = |mailbox: &Mailbox, pattern: Option<&Bytes>| {
            let message = Message {
                pattern: pattern.cloned(),
                channel: channel.clone(),
                payload: payload.clone(),
            };
            count += u64::from(mailbox.deliver(namespace, message));
        };
        for mailbox in listeners
            .channels
            .get(channel)
            .into_iter()
            .flat_map(BTreeMap::values)
        {
            send(mailbox, None);
        }
        for (pattern, mailboxes) in &listeners.patterns {
            if glob_matches(pattern, channel) {
                for mailbox in mailboxes.values() {
                    send(mailbox, Some(pattern));
                }
            }
        }
        count
    }

    /// Begins to listen to a channel or a pattern.
    pub(crate) fn subscribe(
        &self,
        is_pattern: bool,
        name: &Bytes,
        id: u64,
        mailbox: &Arc<Mailbox>,
    ) {
        let mut listeners = self.listeners();
        let of = listeners.of(is_pattern).entry(name.clone()).or_default();
        of.insert(id, Arc::clone(mailbox));
    }

    /// Ends that.
    pub(crate) fn unsubscribe(&self, is_pattern: bool, name: &Bytes, id: u64) {
        let mut listeners = self.listeners();
        let all = listeners.of(is_pattern);
        if let Some(mailboxes) = all.get_mut(name) {
            mailboxes.remove(&id);
            if mailboxes.is_empty() {
                all.remove(name);
            }
        }
    }

    /// Channels that somebody listens to, those that match a pattern if there is one.
    pub(crate) fn channels(&self, pattern: Option<&Bytes>) -> Vec<Bytes> {
        let listeners = self.listeners();
        let matching = listeners
            .channels
            .keys()
            .filter(|name| pattern.is_none_or(|pattern| glob_matches(pattern, name)));
        let mut names: Vec<_> = matching.cloned().collect();
        names.sort_unstable();
        names
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

impl Listeners {
    fn of(&mut self, is_pattern: bool) -> &mut HashMap<Bytes, BTreeMap<u64, Arc<Mailbox>>> {
        if is_pattern {
            &mut self.patterns
        } else {
            &mut self.channels
        }
    }
}
