//! What listings by end and by value see of the rows of the memory store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;

use ganger_types::query::JobQuery;
use ganger_types::{JobKey, JobState, StoredJob};

use super::reader::stored;
use super::rows::Rows;
use crate::rows::by_end::Ends;
use crate::rows::row::to_sql;
use crate::rows::secondary_index::{self, IndexEntry};
use crate::rows::values::Entries;

/// The ends of all jobs; all queues are one place.
pub(super) struct MemoryEnds<'a>(pub(super) &'a Rows);

impl Ends for MemoryEnds<'_> {
    type Error = Infallible;

    fn places(&mut self, _: &JobQuery) -> Result<Vec<i64>, Infallible> {
        Ok(vec![0])
    }

    fn before(
        &mut self,
        _: i64,
        outcome: JobState,
        before: i64,
        limit: usize,
    ) -> Result<VecDeque<(i64, JobKey)>, Infallible> {
        let records = self.0.jobs.values();
        let ends = records.filter(|record| record.state == outcome);
        let ends = ends.filter_map(|record| {
            let end = record.finished.as_ref()?;
            Some((to_sql(end.order), record.key))
        });
        let mut ends: Vec<_> = ends.filter(|(end, _)| *end < before).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        ends.truncate(limit);
        Ok(ends.into())
    }

    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, Infallible> {
        let record = self.0.jobs.get(&key);
        Ok(record.map(|record| stored(self.0, record)))
    }
}

/// The secondary index: of each entry the jobs, and whether they have ended.
pub(super) struct MemoryEntries(BTreeMap<IndexEntry, BTreeSet<(JobKey, bool)>>);

impl MemoryEntries {
    pub(super) fn of(rows: &Rows) -> Self {
        let mut entries: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for record in rows.jobs.values() {
            for entry in secondary_index::of(record) {
                let job = (record.key, record.finished.is_some());
                entries.entry(entry).or_default().insert(job);
            }
        }
        Self(entries)
    }
}

impl Entries for MemoryEntries {
    type Error = Infallible;

    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        let mut entries = self.0.range(from.to_vec()..to.to_vec());
        Ok(entries.next().map(|(entry, _)| entry.clone()))
    }

    fn count(&mut self, from: &[u8], to: &[u8], max: u64) -> Result<(u64, u64), Infallible> {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let entries = self.0.range(from.to_vec()..to.to_vec());
        let jobs: Vec<_> = entries.flat_map(|(_, jobs)| jobs).take(max).collect();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let live = jobs.iter().filter(|(_, has_ended)| !has_ended).count();
        Ok((count(jobs.len()), count(live)))
    }
}
