//! Work queues among raw keys: the layout that clients of redis-work-queue use, and the state of an item.
//!
//! The queue `P` consists of the lists `P:queue` and `P:processing`. An item is the string `P:item:ID`, and its lease
//! is the string `P:lease:ID`, or `P:leased_by_session:ID` in older clients. `P` and `ID` may contain any bytes, so
//! code builds keys from known parts wherever possible and tries several ways to split a key where it must.

use std::collections::BTreeSet;

use ganger_types::{Bytes, Elapsed};

use super::list::List;
use super::{Entry, KeySpace, Value};

pub(super) const QUEUE: &[u8] = b":queue";
pub(super) const PROCESSING: &[u8] = b":processing";
pub(super) const ITEM: &[u8] = b":item:";
pub(super) const LEASES: [&[u8]; 2] = [b":lease:", b":leased_by_session:"];

/// Maximum number of ways to split one key; each costs a lookup of two lists. A key with more is no key of a work
/// queue.
const READINGS_MAX: usize = 16;

/// The lists of a work queue; at least one exists.
pub(super) struct Lists<'a> {
    pub(super) main: Option<&'a List>,
    pub(super) processing: Option<&'a List>,
}

/// Whether an item has a lease.
pub(super) enum ItemState<'a> {
    /// The item does not exist.
    Gone,
    /// A session holds a lease: when it expires (`None`: never), and the session's name.
    Leased(Option<Elapsed>, &'a Bytes),
    Free,
}

impl Lists<'_> {
    pub(super) fn in_main(&self, id: &Bytes) -> bool {
        self.main.is_some_and(|list| list.has(id))
    }

    pub(super) fn in_processing(&self, id: &Bytes) -> bool {
        self.processing.is_some_and(|list| list.has(id))
    }
}

impl KeySpace {
    /// The list of that name.
    pub(super) fn list(&self, name: &Bytes) -> Option<&List> {
        match &self.find(name)?.1.value {
            Value::List(list) => Some(list),
            Value::String(_) => None,
        }
    }

    /// The lists of a work queue; `None` if both are missing.
    pub(super) fn lists_of(&self, queue: &[u8]) -> Option<Lists<'_>> {
        let lists = Lists {
            main: self.list(&joined(queue, b"", QUEUE)),
            processing: self.list(&joined(queue, b"", PROCESSING)),
        };
        (lists.main.is_some() || lists.processing.is_some()).then_some(lists)
    }

    /// The work queues, recomputed from the lists, for comparison.
    pub(super) fn work_queues(&self) -> BTreeSet<Bytes> {
        let lists = self.entries.values();
        let lists = lists.filter(|entry| matches!(entry.value, Value::List(_)));
        lists
            .filter_map(|entry| work_queue_of(&entry.name))
            .collect()
    }

    /// The data of an item, unless it has expired by `now`.
    pub(super) fn item(&self, queue: &[u8], id: &[u8], now: Elapsed) -> Option<&Bytes> {
        match &self.live(&joined(queue, ITEM, id), now)?.value {
            Value::String(value) => Some(value),
            Value::List(_) => None,
        }
    }

    /// The state of an item at `now`.
    pub(super) fn item_state(&self, queue: &[u8], id: &[u8], now: Elapsed) -> ItemState<'_> {
        if self.item(queue, id, now).is_none() {
            return ItemState::Gone;
        }
        let leases = LEASES.map(|between| joined(queue, between, id));
        let mut live = leases.iter().filter_map(|name| self.live(name, now));
        let Some(lease) = live.next() else {
            return ItemState::Free;
        };
        // With two leases the longer one counts; `None` never expires.
        let longest = live.fold(lease, |one, other| {
            let is_longer = match (one.expires_at, other.expires_at) {
                (Some(one), Some(other)) => other > one,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if is_longer { other } else { one }
        });
        let session = match &longest.value {
            Value::String(session) => session,
            Value::List(_) => &longest.name,
        };
        ItemState::Leased(longest.expires_at, session)
    }

    /// The key, unless it has expired by `now`.
    fn live(&self, name: &Bytes, now: Elapsed) -> Option<&Entry> {
        let (_, entry) = self.find(name)?;
        entry.expires_at.is_none_or(|at| at > now).then_some(entry)
    }
}

/// The key of a part of a queue: `P`, the word between, and the rest.
pub(super) fn joined(queue: &[u8], between: &[u8], rest: &[u8]) -> Bytes {
    Bytes::from([queue, between, rest].concat())
}

/// The work queue of a list, by its name.
pub(super) fn work_queue_of(list: &Bytes) -> Option<Bytes> {
    let queue = list
        .strip_suffix(QUEUE)
        .or_else(|| list.strip_suffix(PROCESSING))?;
    Some(list.slice(..queue.len()))
}

pub(super) fn is_item_like(name: &[u8]) -> bool {
    name.windows(ITEM.len()).any(|window| window == ITEM)
}

/// The ways to split a key into a queue, the word `between`, and an id.
pub(super) fn readings(key: &Bytes, between: &[u8]) -> Vec<(Bytes, Bytes)> {
    let places = key.windows(between.len()).enumerate();
    let splits = places.filter(|(_, window)| *window == between);
    splits
        .take(READINGS_MAX)
        .map(|(at, _)| (key.slice(..at), key.slice(at + between.len()..)))
        .collect()
}
