//! Payloads of jobs not yet handed out and results of recent endings, bounded by bytes.
//!
//! Two generations: when the young one has taken half of the room, the old one is dropped and the
//! young one becomes old. What is left out is read from the store.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use ganger_types::{Bytes, Change, JobKey};

/// Hashes alike in every run, so that runs can be repeated. Keys are the shard's own numbers.
pub(super) type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Payload,
    Result,
}

/// What an entry costs beside its bytes.
const ENTRY_BYTES: usize = 96;

#[derive(Default)]
struct Generation {
    bytes: usize,
    blobs: FixedMap<(JobKey, Part), Bytes>,
}

impl Generation {
    fn take(&mut self, key: JobKey, part: Part) -> Option<Bytes> {
        let blob = self.blobs.remove(&(key, part))?;
        self.bytes -= blob.len() + ENTRY_BYTES;
        Some(blob)
    }

    fn put(&mut self, key: JobKey, part: Part, blob: Bytes) {
        self.take(key, part);
        self.bytes += blob.len() + ENTRY_BYTES;
        self.blobs.insert((key, part), blob);
    }
}

/// The cache. It holds what is committed and nothing else.
pub(super) struct Blobs {
    half_bytes: usize,
    young: Generation,
    old: Generation,
}

impl Blobs {
    /// A cache of about `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            half_bytes: bytes / 2,
            young: Generation::default(),
            old: Generation::default(),
        }
    }

    /// Takes a payload out: once handed out it is rarely wanted again.
    pub(super) fn take_payload(&mut self, key: JobKey) -> Option<Bytes> {
        self.take(key, Part::Payload)
    }

    /// A result; it stays, several may need it.
    pub(super) fn result(&self, key: JobKey) -> Option<&Bytes> {
        let place = (key, Part::Result);
        self.young
            .blobs
            .get(&place)
            .or_else(|| self.old.blobs.get(&place))
    }

    /// Learns from a durable turn.
    pub(super) fn learn(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::PutPayload { key, payload } => self.put(*key, Part::Payload, payload),
                Change::FinishJob { record, result } => {
                    self.take(record.key, Part::Payload);
                    if let Some(result) = result {
                        self.put(record.key, Part::Result, result);
                    }
                }
                Change::ReviveJob(key) => drop(self.take(*key, Part::Result)),
                Change::RemoveJob(key) => {
                    self.take(*key, Part::Payload);
                    self.take(*key, Part::Result);
                }
                _ => {}
            }
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.young.bytes + self.old.bytes
    }

    fn take(&mut self, key: JobKey, part: Part) -> Option<Bytes> {
        self.young
            .take(key, part)
            .or_else(|| self.old.take(key, part))
    }

    fn put(&mut self, key: JobKey, part: Part, blob: &Bytes) {
        self.take(key, part);
        if blob.len() + ENTRY_BYTES > self.half_bytes {
            return;
        }
        if self.young.bytes + blob.len() + ENTRY_BYTES > self.half_bytes {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.put(key, part, blob.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(key: u64, len: usize) -> Change {
        Change::PutPayload {
            key: JobKey(key),
            payload: vec![0; len].into(),
        }
    }

    #[test]
    fn it_never_holds_more_than_it_may() {
        let mut blobs = Blobs::new(10_000);
        for key in 0..1_000 {
            blobs.learn(&[payload(key, 300)]);
            assert!(blobs.bytes() <= 10_000);
        }
        assert!(blobs.take_payload(JobKey(999)).is_some());
        assert!(blobs.take_payload(JobKey(999)).is_none());
        assert!(blobs.take_payload(JobKey(0)).is_none());
    }

    #[test]
    fn a_replaced_payload_replaces_the_old_one_also_across_generations() {
        let mut blobs = Blobs::new(2_000);
        blobs.learn(&[payload(1, 500), payload(2, 500), payload(1, 7)]);
        assert_eq!(
            blobs.take_payload(JobKey(1)).map(|blob| blob.len()),
            Some(7)
        );
        assert!(blobs.take_payload(JobKey(1)).is_none());
        assert_eq!(
            blobs.take_payload(JobKey(2)).map(|blob| blob.len()),
            Some(500)
        );
        assert_eq!(blobs.bytes(), 0);
    }

    #[test]
    fn a_blob_larger_than_half_is_not_kept() {
        let mut blobs = Blobs::new(1_000);
        blobs.learn(&[payload(1, 450)]);
        assert_eq!(blobs.bytes(), 0);
    }
}
