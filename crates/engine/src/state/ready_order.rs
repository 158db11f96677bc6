//! The ready jobs of a queue in their order, in memory that a million of them can afford.
//!
//! A sorted sequence in chunks. Jobs mostly come at the end and leave at the front, so nearly all chunks are full: a
//! place takes 24 bytes, where a B-tree that only grows at its end is half empty.

use std::collections::VecDeque;

use ganger_types::{JobKey, Priority};

/// Position of a job among the ready jobs of its queue; see [`super::Job::place`].
pub(crate) type ReadyPlace = (Priority, u64, JobKey);

/// Largest number of places in a chunk. An insertion in the middle moves half of them at most.
const CHUNK_PLACES: usize = 512;

/// Ready jobs in order, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadyOrder {
    /// No chunk is empty, and each is sorted and lies wholly before the next one.
    chunks: VecDeque<VecDeque<ReadyPlace>>,
    /// Number of places in all chunks.
    len: usize,
}

impl ReadyOrder {
    /// Returns the number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the place of the job that goes first; `None` if there is no job.
    pub(crate) fn first(&self) -> Option<&ReadyPlace> {
        self.chunks.front()?.front()
    }

    /// Returns the number of jobs before `place`, at most `max`.
    pub(crate) fn count_before(&self, place: &ReadyPlace, max: usize) -> usize {
        let mut count = 0;
        for chunk in &self.chunks {
            let before = chunk.partition_point(|other| other < place);
            count += before;
            if before < chunk.len() || count >= max {
                break;
            }
        }
        count.min(max)
    }

    /// Returns the places after `after` in order; from the first on without one.
    pub(crate) fn after(&self, after: Option<&ReadyPlace>) -> impl Iterator<Item = &ReadyPlace> {
        let index = after.map_or(0, |after| self.chunk_for(after));
        let chunks = self.chunks.iter().skip(index).flatten();
        chunks.skip_while(move |place| after.is_some_and(|after| *place <= after))
    }

    /// Adds a job; returns false if it was there.
    pub(crate) fn insert(&mut self, place: ReadyPlace) -> bool {
        let index = self.chunk_for(&place);
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.push_last(place);
            return true;
        };
        let Err(position) = chunk.binary_search(&place) else {
            return false;
        };
        chunk.insert(position, place);
        if chunk.len() > CHUNK_PLACES {
            let rest = chunk.split_off(CHUNK_PLACES / 2);
            self.chunks.insert(index + 1, rest);
        }
        self.len += 1;
        true
    }

    /// Removes a job; returns false if it was not there.
    pub(crate) fn remove(&mut self, place: &ReadyPlace) -> bool {
        let index = self.chunk_for(place);
        let Some(chunk) = self.chunks.get_mut(index) else {
            return false;
        };
        let Ok(position) = chunk.binary_search(place) else {
            return false;
        };
        chunk.remove(position);
        if chunk.is_empty() {
            self.chunks.remove(index);
        } else if chunk.len() < CHUNK_PLACES / 4 {
            self.join_with_next(index);
            self.join_with_next(index.saturating_sub(1));
        }
        self.len -= 1;
        true
    }

    /// Index of the first chunk that ends at or after `place`: the only one that can have it.
    fn chunk_for(&self, place: &ReadyPlace) -> usize {
        let ends_before = |chunk: &VecDeque<_>| chunk.back().is_some_and(|last| last < place);
        self.chunks.partition_point(ends_before)
    }

    /// Adds a job behind all others. A full chunk stays full.
    fn push_last(&mut self, place: ReadyPlace) {
        match self.chunks.back_mut() {
            Some(last) if last.len() < CHUNK_PLACES => last.push_back(place),
            _ => self.chunks.push_back(VecDeque::from([place])),
        }
        self.len += 1;
    }

    /// Joins a chunk that removals have nearly emptied with the next one, if both fit into half a chunk.
    fn join_with_next(&mut self, index: usize) {
        let len_at = |index: usize| self.chunks.get(index).map_or(CHUNK_PLACES, VecDeque::len);
        if len_at(index) + len_at(index + 1) <= CHUNK_PLACES / 2
            && let Some(mut next) = self.chunks.remove(index + 1)
        {
            self.chunks[index].append(&mut next);
        }
    }
}

impl PartialEq for ReadyOrder {
    /// Whether both have the same jobs, however they are split into chunks.
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self
                .chunks
                .iter()
                .flatten()
                .eq(other.chunks.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn place(priority: i64, at: u64) -> ReadyPlace {
        (Priority::from_millionths(priority), at, JobKey(at))
    }

    #[test]
    fn jobs_in_order_fill_their_chunks() {
        let mut order = ReadyOrder::default();
        (0..10_000).for_each(|at| assert!(order.insert(place(0, at))));
        assert_eq!(order.chunks.len(), 10_000_usize.div_ceil(CHUNK_PLACES));
        for at in 0..10_000 {
            assert_eq!(order.first(), Some(&place(0, at)));
            assert!(order.remove(&place(0, at)));
        }
        assert_eq!((order.len(), order.chunks.len()), (0, 0));
    }

    #[test]
    fn removals_all_over_leave_no_memory_of_small_chunks() {
        let mut order = ReadyOrder::default();
        (0..100_000).for_each(|at| assert!(order.insert(place(0, at))));
        (0..100_000)
            .filter(|at| at % 100 != 0)
            .for_each(|at| assert!(order.remove(&place(0, at))));
        assert_eq!(order.len(), 1_000);
        assert!(order.chunks.len() <= 12, "{} chunks", order.chunks.len());
    }

    proptest! {
        /// Whatever comes and goes, the order answers as a sorted set does.
        #[test]
        fn it_equals_a_sorted_set(steps in vec((any::<bool>(), 0..3_i64, 0..3_000_u64), 1..4_000)) {
            let (mut order, mut set) = (ReadyOrder::default(), BTreeSet::new());
            for (comes, priority, at) in steps {
                let place = place(priority, at);
                if comes {
                    prop_assert_eq!(order.insert(place), set.insert(place));
                } else {
                    prop_assert_eq!(order.remove(&place), set.remove(&place));
                }
                prop_assert_eq!((order.len(), order.first()), (set.len(), set.first()));
                let before = set.range(..place).take(100).count();
                prop_assert_eq!(order.count_before(&place, 100), before);
                prop_assert!(order.chunks.iter().all(|chunk| (1..=CHUNK_PLACES).contains(&chunk.len())));
            }
            prop_assert!(order.chunks.iter().flatten().eq(&set));
        }
    }
}
