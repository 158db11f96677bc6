//! The table of live jobs: dense slots, and a hash index by job number.
//!
//! Designed for a million jobs: 72 bytes per slot, about 8 for the index, and no copying when it grows.

use ganger_types::JobKey;
use hashbrown::HashTable;

use super::job::Job;

const CHUNK_SLOTS: usize = 1_024;

/// Live jobs by number. The order of iteration depends only on the order of inserts and removals.
#[derive(Default)]
pub(crate) struct JobTable {
    /// Slots in chunks, which are all full except the last; a free slot is `None`.
    chunks: Vec<Vec<Option<Job>>>,
    free: Vec<u32>,
    slots: HashTable<u32>,
}

/// Hashes a number (the finalizer of splitmix64), because numbers are consecutive.
fn hash(key: JobKey) -> u64 {
    let mut bits = key.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits ^ (bits >> 27)
}

fn at(chunks: &[Vec<Option<Job>>], slot: u32) -> Option<&Job> {
    let slot = usize::try_from(slot).ok()?;
    chunks
        .get(slot / CHUNK_SLOTS)?
        .get(slot % CHUNK_SLOTS)?
        .as_ref()
}

impl JobTable {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn slot_of(&self, key: JobKey) -> Option<u32> {
        let is_it = |slot: &u32| at(&self.chunks, *slot).is_some_and(|job| job.key == key);
        self.slots.find(hash(key), is_it).copied()
    }

    pub(crate) fn get(&self, key: JobKey) -> Option<&Job> {
        at(&self.chunks, self.slot_of(key)?)
    }

    pub(crate) fn get_mut(&mut self, key: JobKey) -> Option<&mut Job> {
        let slot = usize::try_from(self.slot_of(key)?).ok()?;
        self.chunks[slot / CHUNK_SLOTS][slot % CHUNK_SLOTS].as_mut()
    }

    /// Adds a job whose number is not in the table.
    pub(crate) fn insert(&mut self, job: Job) {
        let key = job.key;
        assert!(
            self.slot_of(key).is_none(),
            "job number {key} is in the table already"
        );
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        let place = usize::try_from(slot).expect("slots are counted in memory");
        self.chunks[place / CHUNK_SLOTS][place % CHUNK_SLOTS] = Some(job);
        let chunks = &self.chunks;
        self.slots.insert_unique(hash(key), slot, |slot| {
            hash(at(chunks, *slot).expect("a listed slot holds a job").key)
        });
    }

    fn grow(&mut self) -> u32 {
        if self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.len() == CHUNK_SLOTS)
        {
            self.chunks.push(Vec::with_capacity(CHUNK_SLOTS));
        }
        let full = (self.chunks.len() - 1) * CHUNK_SLOTS;
        let chunk = self.chunks.last_mut().expect("one was just ensured");
        chunk.push(None);
        u32::try_from(full + chunk.len() - 1).expect("fewer than 2^32 live jobs")
    }

    pub(crate) fn remove(&mut self, key: JobKey) -> Option<Job> {
        let chunks = &self.chunks;
        let is_it = |slot: &u32| at(chunks, *slot).is_some_and(|job| job.key == key);
        let slot = match self.slots.find_entry(hash(key), is_it) {
            Ok(entry) => entry.remove().0,
            Err(_) => return None,
        };
        self.free.push(slot);
        let place = usize::try_from(slot).expect("slots are counted in memory");
        self.chunks[place / CHUNK_SLOTS][place % CHUNK_SLOTS].take()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.chunks.iter().flatten().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::{KindIndex, QueueIndex, RetryIndex};
    use super::*;
    use ganger_types::{Elapsed, IdTag, JobState, Priority, Timestamp};

    fn job(key: u64) -> Job {
        Job {
            key: JobKey(key),
            priority: Priority::default(),
            created_at: Timestamp(0),
            ready_at: Elapsed(0),
            queue: QueueIndex(0),
            kind: KindIndex(0),
            retry: RetryIndex(0),
            id_tag: IdTag(0),
            attempt: 0,
            attempts_counted: 0,
            payload_bytes: 0,
            state: JobState::Ready,
            details: None,
        }
    }

    #[test]
    fn a_job_is_found_until_it_is_removed_and_its_slot_is_used_again() {
        let mut table = JobTable::default();
        (0..5_000).for_each(|key| table.insert(job(key)));
        assert_eq!(
            table.remove(JobKey(17)).map(|job| job.key),
            Some(JobKey(17))
        );
        assert!(table.get(JobKey(17)).is_none() && table.remove(JobKey(17)).is_none());
        table.insert(job(9_000));
        assert_eq!(table.len(), 5_000);
        assert_eq!(table.chunks.len(), 5);
        assert!(
            (0..5_000)
                .filter(|key| *key != 17)
                .all(|key| table.get(JobKey(key)).is_some())
        );
    }

    #[test]
    fn a_slot_is_small() {
        assert!(
            size_of::<Option<Job>>() <= 80,
            "{} bytes",
            size_of::<Option<Job>>()
        );
    }
}
