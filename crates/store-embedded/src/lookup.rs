//! What listings by end and by value read of the tables: one index lookup at a time.

use std::collections::VecDeque;

use ganger_store::StoredJob;
use ganger_store::rows::by_end::Ends;
use ganger_store::rows::row::from_sql;
use ganger_store::rows::values::Entries;
use ganger_types::query::JobQuery;
use ganger_types::{JobKey, JobState, Queue};
use rusqlite::{Connection, OptionalExtension};

use crate::fault::Fault;
use crate::reader::job;

/// The ends of jobs.
pub(crate) struct TableEnds<'a>(pub(crate) &'a Connection);

impl Ends for TableEnds<'_> {
    type Error = Fault;

    fn places(&mut self, query: &JobQuery) -> Result<Vec<i64>, Fault> {
        let mut statement = self.0.prepare_cached(
            "SELECT id FROM places WHERE namespace = ?1 AND (?2 IS NULL OR queue = ?2)",
        )?;
        let queue = query.queue.as_ref().map(Queue::as_bytes);
        let places = statement.query_map((query.namespace.as_bytes(), queue), |row| row.get(0))?;
        Ok(places.collect::<Result<_, _>>()?)
    }

    fn before(
        &mut self,
        place: i64,
        outcome: JobState,
        before: i64,
        limit: usize,
    ) -> Result<VecDeque<(i64, JobKey)>, Fault> {
        let mut statement = self.0.prepare_cached(
            "SELECT ended_order, key FROM finished
             WHERE place = ?1 AND outcome = ?2 AND ended_order < ?3
             ORDER BY ended_order DESC LIMIT ?4",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let ends = statement.query_map((place, outcome.number(), before, limit), |row| {
            Ok((row.get(0)?, JobKey(from_sql(row.get(1)?))))
        })?;
        Ok(ends.collect::<Result<_, _>>()?)
    }

    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, Fault> {
        job(self.0, key)
    }
}

/// The secondary index as a table of entries and jobs.
pub(crate) struct TableEntries<'a>(pub(crate) &'a Connection);

impl Entries for TableEntries<'_> {
    type Error = Fault;

    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let mut statement = self.0.prepare_cached(
            "SELECT mark FROM marks WHERE mark >= ?1 AND mark < ?2 ORDER BY mark LIMIT 1",
        )?;
        let found = statement.query_row((from, to), |row| row.get(0));
        Ok(found.optional()?)
    }

    fn count(&mut self, from: &[u8], to: &[u8], max: u64) -> Result<(u64, u64), Fault> {
        let mut statement = self.0.prepare_cached(
            "SELECT count(*), count(j.key) FROM
                (SELECT key FROM marks WHERE mark >= ?1 AND mark < ?2 LIMIT ?3) m
             LEFT JOIN jobs j ON j.key = m.key",
        )?;
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let (jobs, live) = statement.query_row((from, to, max), |row| {
            Ok((from_sql(row.get(0)?), from_sql(row.get(1)?)))
        })?;
        Ok((jobs, live))
    }
}
