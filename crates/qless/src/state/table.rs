//! Jobs by their ids.
//!
//! A call looks a job up a dozen times, so they are found by hash; beside that, their ids are kept in order. The hash has
//! keys of its own in each process, so that nobody can choose ids that collide. Nothing goes by the hash's order.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use ganger_types::qless::QlessJob;
use hashbrown::HashTable;

/// The number of the first job. Jobs of stores that know of no numbers have 0.
const NUMBER_FIRST: u64 = 1;

/// Table of every job of a namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Jobs {
    entries: HashTable<Entry>,
    order: BTreeSet<Key>,
    hash: RandomState,
    /// All numbers of jobs are below it, also of those that have gone: their rows may still be on their way out.
    next_number: u64,
}

/// A job in the table.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Shared with the rows that are on their way to the store.
    pub(super) job: Arc<QlessJob>,
    /// Which of the notes on touched jobs is its own, if it was touched.
    pub(super) touch: Option<usize>,
}

/// A job's id, ordered by its bytes.
///
/// A tree's node holds the first bytes of its keys itself, so that a search seldom has to look behind a pointer: ids are
/// mostly random from their first byte on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The first bytes as a number, zeros for those that are not there. It never orders two ids otherwise than their
    /// bytes do; where it is the same, those decide.
    head: u64,
    jid: Bytes,
}

impl Key {
    fn new(jid: &Bytes) -> Self {
        let mut head = [0; 8];
        let length = jid.len().min(head.len());
        head[..length].copy_from_slice(&jid[..length]);
        Self {
            head: u64::from_be_bytes(head),
            jid: jid.clone(),
        }
    }
}

impl Jobs {
    pub(super) fn get(&self, jid: &Bytes) -> Option<&Arc<QlessJob>> {
        let found = self.entries.find(self.hash_of(jid), is(jid));
        found.map(|entry| &entry.job)
    }

    pub(super) fn entry(&mut self, jid: &Bytes) -> Option<&mut Entry> {
        self.entries.find_mut(self.hash_of(jid), is(jid))
    }

    /// Enters a new job, on which there is that note; its number.
    pub(super) fn begin(&mut self, touch: usize, job: impl FnOnce(u64) -> QlessJob) -> u64 {
        let number = self.next_number.max(NUMBER_FIRST);
        self.insert(Arc::new(job(number)), Some(touch));
        number
    }

    /// Removes all jobs from the table.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    /// Enters a job whose id is not there yet, or instead of the one with its id.
    pub(super) fn insert(&mut self, job: Arc<QlessJob>, touch: Option<usize>) {
        let jid = job.jid.clone();
        self.next_number = self.next_number.max(job.number.saturating_add(1));
        if let Some(entry) = self.entry(&jid) {
            *entry = Entry { job, touch };
            return;
        }
        let hash = &self.hash;
        let entry = Entry { job, touch };
        self.entries
            .insert_unique(hash.hash_one(&jid), entry, |entry| {
                hash.hash_one(&entry.job.jid)
            });
        self.order.insert(Key::new(&jid));
    }

    pub(super) fn remove(&mut self, jid: &Bytes) -> Option<Entry> {
        let found = self.entries.find_entry(self.hash_of(jid), is(jid));
        let (entry, _) = found.ok()?.remove();
        self.order.remove(&Key::new(jid));
        Some(entry)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The jobs behind this id, in order of the ids; all of them without one.
    pub(super) fn after(&self, jid: Option<&Bytes>) -> impl Iterator<Item = &Arc<QlessJob>> {
        let from = jid.map_or(Bound::Unbounded, |jid| Bound::Excluded(Key::new(jid)));
        let keys = self.order.range((from, Bound::Unbounded));
        keys.filter_map(|key| self.get(&key.jid))
    }

    /// Every job, in order of the ids.
    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<QlessJob>> {
        self.after(None)
    }

    fn hash_of(&self, jid: &Bytes) -> u64 {
        self.hash.hash_one(jid)
    }
}

fn is(jid: &Bytes) -> impl Fn(&Entry) -> bool {
    move |entry| entry.job.jid == jid
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::Key;

    proptest! {
        #[test]
        fn keys_are_ordered_as_their_bytes(
            left in proptest::collection::vec(0..3_u8, 0..12),
            right in proptest::collection::vec(0..3_u8, 0..12),
        ) {
            let (left, right) = (Bytes::from(left), Bytes::from(right));
            prop_assert_eq!(Key::new(&left).cmp(&Key::new(&right)), left.cmp(&right));
        }
    }
}
