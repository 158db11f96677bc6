//! Jobs by their ids, in order of these.
//!
//! A tree's node holds the first bytes of its keys itself, so that a search seldom has to look behind a pointer: with
//! many jobs each such look waits for memory, and ids are mostly random from their first byte on.

use std::collections::BTreeMap;

use bytes::Bytes;
use ganger_types::qless::QlessJob;

/// Every job. Boxed, since the tree moves what it holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Jobs(BTreeMap<Key, Box<QlessJob>>);

/// A job's id, ordered by its bytes.
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
    pub(super) fn get(&self, jid: &Bytes) -> Option<&QlessJob> {
        self.0.get(&Key::new(jid)).map(|job| &**job)
    }

    pub(super) fn get_mut(&mut self, jid: &Bytes) -> Option<&mut QlessJob> {
        self.0.get_mut(&Key::new(jid)).map(|job| &mut **job)
    }

    pub(super) fn insert(&mut self, job: Box<QlessJob>) {
        self.0.insert(Key::new(&job.jid), job);
    }

    pub(super) fn remove(&mut self, jid: &Bytes) -> Option<QlessJob> {
        self.0.remove(&Key::new(jid)).map(|job| *job)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every job, in order of the ids.
    pub(super) fn values(&self) -> impl Iterator<Item = &QlessJob> {
        self.0.values().map(|job| &**job)
    }
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
