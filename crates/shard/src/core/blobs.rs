//! Caches payloads of jobs not yet leased and results of recently finished jobs, bounded by bytes.
//!
//! The cache has two generations: when the young one has filled half of the space, the old one is dropped and the
//! young one becomes old. Missing entries are read from the store.

use std::collections::BTreeSet;

use ganger_store::NumberMap;
use ganger_types::{Bytes, Change, InputRow, InputState, JobKey};

/// Bytes that an entry costs besides its content.
const ENTRY_BYTES: usize = 96;

/// Largest blob in bytes that is copied. A blob is a slice of a whole client message, which would otherwise stay in
/// memory as long as any of its slices.
const COPIED_BYTES_MAX: usize = 4_096;

/// Blobs by the number of their job.
#[derive(Default)]
struct Generation {
    bytes: usize,
    payloads: NumberMap<JobKey, Bytes>,
    results: NumberMap<JobKey, Bytes>,
}

impl Generation {
    fn take_payload(&mut self, key: JobKey) -> Option<Bytes> {
        let blob = self.payloads.remove(&key)?;
        self.bytes -= cost(&blob);
        Some(blob)
    }

    fn forget_result(&mut self, key: JobKey) {
        if let Some(blob) = self.results.remove(&key) {
            self.bytes -= cost(&blob);
        }
    }
}

fn cost(blob: &Bytes) -> usize {
    blob.len() + ENTRY_BYTES
}

/// The cache. It holds only committed content.
pub(super) struct BlobCache {
    half_bytes: usize,
    young: Generation,
    old: Generation,
}

impl BlobCache {
    /// Creates a cache of about `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            half_bytes: bytes / 2,
            young: Generation::default(),
            old: Generation::default(),
        }
    }

    /// Removes and returns a payload; once delivered it is rarely needed again.
    pub(super) fn take_payload(&mut self, key: JobKey) -> Option<Bytes> {
        let young = self.young.take_payload(key);
        young.or_else(|| self.old.take_payload(key))
    }

    /// Returns a result, which stays in the cache, since several jobs may need it.
    pub(super) fn result(&self, key: JobKey) -> Option<&Bytes> {
        let young = self.young.results.get(&key);
        young.or_else(|| self.old.results.get(&key))
    }

    /// Adds the content of a durable turn. Results are kept only if live jobs wait for them, which the same turn's
    /// changes show.
    pub(super) fn apply_changes(&mut self, changes: &[Change]) {
        let wanted = consumed_results(changes);
        for change in changes {
            match change {
                Change::PutPayload { key, payload } => self.put_payload(*key, payload),
                Change::FinishJob { record, result } => {
                    self.take_payload(record.key);
                    if let Some(result) = result
                        && wanted.contains(&record.key)
                    {
                        self.put_result(record.key, result);
                    }
                }
                Change::RetryJob(key) => self.forget_result(*key),
                Change::RemoveJob(key) => {
                    self.take_payload(*key);
                    self.forget_result(*key);
                }
                _ => {}
            }
        }
    }

    /// Returns the number of bytes that the cache holds.
    pub(super) fn bytes(&self) -> usize {
        self.young.bytes + self.old.bytes
    }

    fn forget_result(&mut self, key: JobKey) {
        self.young.forget_result(key);
        self.old.forget_result(key);
    }

    fn put_payload(&mut self, key: JobKey, payload: &Bytes) {
        self.take_payload(key);
        // The grant says that a payload is empty, so none is read.
        if !payload.is_empty() && self.make_room(cost(payload)) {
            self.young.bytes += cost(payload);
            self.young.payloads.insert(key, compact(payload));
        }
    }

    fn put_result(&mut self, key: JobKey, result: &Bytes) {
        self.forget_result(key);
        if self.make_room(cost(result)) {
            self.young.bytes += cost(result);
            self.young.results.insert(key, compact(result));
        }
    }

    /// Makes room for a blob of this cost in the young generation; returns false if the blob is too large to cache.
    fn make_room(&mut self, cost: usize) -> bool {
        if cost > self.half_bytes {
            return false;
        }
        if self.young.bytes + cost > self.half_bytes {
            self.old = std::mem::take(&mut self.young);
        }
        true
    }
}

/// Returns the blob for the cache: a copy if it is small.
fn compact(blob: &Bytes) -> Bytes {
    if blob.len() <= COPIED_BYTES_MAX {
        Bytes::copy_from_slice(blob)
    } else {
        blob.clone()
    }
}

/// Returns the dependencies whose results this turn gave to live jobs.
fn consumed_results(changes: &[Change]) -> BTreeSet<JobKey> {
    let dependency = |change: &Change| match change {
        Change::PutInput(InputRow {
            state: InputState::Delivered { dependency, .. },
            ..
        }) => Some(*dependency),
        _ => None,
    };
    changes.iter().filter_map(dependency).collect()
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
        let mut blobs = BlobCache::new(10_000);
        for key in 0..1_000 {
            blobs.apply_changes(&[payload(key, 300)]);
            assert!(blobs.bytes() <= 10_000);
        }
        assert!(blobs.take_payload(JobKey(999)).is_some());
        assert!(blobs.take_payload(JobKey(999)).is_none());
        assert!(blobs.take_payload(JobKey(0)).is_none());
    }

    #[test]
    fn a_replaced_payload_replaces_the_old_one_also_across_generations() {
        let mut blobs = BlobCache::new(2_000);
        blobs.apply_changes(&[payload(1, 500), payload(2, 500), payload(1, 7)]);
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
        let mut blobs = BlobCache::new(1_000);
        blobs.apply_changes(&[payload(1, 450)]);
        assert_eq!(blobs.bytes(), 0);
    }

    #[test]
    fn small_blobs_do_not_keep_the_message_they_came_in() {
        let message = Bytes::from(vec![b'm'; 100_000]);
        let mut blobs = BlobCache::new(1_000_000);
        blobs.apply_changes(&[Change::PutPayload {
            key: JobKey(1),
            payload: message.slice(10..20),
        }]);
        assert!(message.is_unique(), "nothing else holds the message");
        assert_eq!(
            blobs.take_payload(JobKey(1)),
            Some(Bytes::from_static(b"mmmmmmmmmm"))
        );
    }

    #[test]
    fn a_payload_replaced_after_the_generations_changed_is_held_once() {
        let mut blobs = BlobCache::new(2_000);
        blobs.apply_changes(&[payload(1, 500), payload(2, 500)]);
        blobs.apply_changes(&[payload(1, 600)]);
        assert_eq!(blobs.bytes(), 500 + 600 + 2 * ENTRY_BYTES);
        blobs.apply_changes(&[payload(1, 600)]);
        assert_eq!(blobs.bytes(), 500 + 600 + 2 * ENTRY_BYTES);
    }

    #[test]
    fn results_are_kept_for_those_who_wait_for_them() {
        let finish = |key| Change::FinishJob {
            record: Box::new(ganger_store::suite::sample::job(key)),
            result: Some(Bytes::from_static(b"7")),
        };
        let input = Change::PutInput(InputRow {
            job: JobKey(9),
            slot: 0,
            state: InputState::Delivered {
                dependency: JobKey(2),
                id: ganger_types::JobId::new("two").expect("short"),
                policy: ganger_types::FailurePolicy::Fail,
            },
        });
        let mut blobs = BlobCache::new(10_000);
        blobs.apply_changes(&[finish(1), finish(2), input]);
        assert_eq!(blobs.result(JobKey(1)), None);
        assert_eq!(
            blobs.result(JobKey(2)).map(|result| &result[..]),
            Some(&b"7"[..])
        );
        blobs.apply_changes(&[Change::RemoveJob(JobKey(2))]);
        assert_eq!(blobs.result(JobKey(2)), None);
        assert_eq!(blobs.bytes(), 0);
    }
}
