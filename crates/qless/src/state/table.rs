//! The table of jobs by id.
//!
//! A call looks a job up a dozen times, so a hash table finds jobs, and an ordered set beside it keeps their ids. The
//! hash has random keys in each process, so that nobody can choose ids that collide. Nothing depends on the order of
//! the hash table.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use ganger_types::qless::QlessJob;
use hashbrown::HashTable;

/// The number of the first job. Jobs from stores that are older than the numbers have 0.
const NUMBER_FIRST: u64 = 1;

/// All jobs of a namespace, found by jid or in order of jids.
#[derive(Clone, Debug, Default)]
pub(super) struct JobTable {
    entries: HashTable<Entry>,
    order: BTreeSet<OrderedJid>,
    hash: RandomState,
    /// The number of the next new job. It is larger than all numbers in use and than those of removed jobs, whose rows
    /// may not have reached the store yet.
    next_number: u64,
}

/// A job in the table, with the record of its change.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The job, shared with the rows that are on their way to the store.
    pub(super) job: Arc<QlessJob>,
    /// Index of the job's record among the touched jobs; `None` if it has not changed since they were last taken.
    pub(super) touch: Option<usize>,
}

/// A job's id, ordered by its bytes.
///
/// The nodes of the tree contain the first bytes of their keys, so that a search seldom follows a pointer: most ids are
/// random from their first byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OrderedJid {
    /// The first 8 bytes as a big-endian number, missing bytes as 0. Two ids with different numbers have the order of
    /// their numbers; for equal numbers the bytes decide.
    head: u64,
    jid: Bytes,
}

impl OrderedJid {
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

impl JobTable {
    pub(super) fn get(&self, jid: &Bytes) -> Option<&Arc<QlessJob>> {
        let found = self.entries.find(self.hash_of(jid), has_jid(jid));
        found.map(|entry| &entry.job)
    }

    pub(super) fn entry(&mut self, jid: &Bytes) -> Option<&mut Entry> {
        self.entries.find_mut(self.hash_of(jid), has_jid(jid))
    }

    /// Inserts a new job whose record has the index `touch`, and returns the job's number.
    pub(super) fn insert_new(&mut self, touch: usize, job: impl FnOnce(u64) -> QlessJob) -> u64 {
        let number = self.next_number.max(NUMBER_FIRST);
        self.insert(Arc::new(job(number)), Some(touch));
        number
    }

    /// Removes all jobs. The numbers go on, so that no number is used twice.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    /// Inserts a job, or replaces the one with the same id.
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
        self.order.insert(OrderedJid::new(&jid));
    }

    pub(super) fn remove(&mut self, jid: &Bytes) -> Option<Entry> {
        let found = self.entries.find_entry(self.hash_of(jid), has_jid(jid));
        let (entry, _) = found.ok()?.remove();
        self.order.remove(&OrderedJid::new(jid));
        Some(entry)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the jobs after this id, in order of ids; all jobs for `None`.
    pub(super) fn after(&self, jid: Option<&Bytes>) -> impl Iterator<Item = &Arc<QlessJob>> {
        let from = jid.map_or(Bound::Unbounded, |jid| {
            Bound::Excluded(OrderedJid::new(jid))
        });
        let keys = self.order.range((from, Bound::Unbounded));
        keys.filter_map(|key| self.get(&key.jid))
    }

    /// Returns every job, in order of ids.
    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<QlessJob>> {
        self.after(None)
    }

    fn hash_of(&self, jid: &Bytes) -> u64 {
        self.hash.hash_one(jid)
    }
}

fn has_jid(jid: &Bytes) -> impl Fn(&Entry) -> bool {
    move |entry| entry.job.jid == jid
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::OrderedJid;

    proptest! {
        #[test]
        fn keys_are_ordered_as_their_bytes(
            left in proptest::collection::vec(0..3_u8, 0..12),
            right in proptest::collection::vec(0..3_u8, 0..12),
        ) {
            let (left, right) = (Bytes::from(left), Bytes::from(right));
            prop_assert_eq!(OrderedJid::new(&left).cmp(&OrderedJid::new(&right)), left.cmp(&right));
        }
    }
}
