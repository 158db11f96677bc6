//! What listings by end and by value read of the tables: one index lookup at a time.

use std::collections::VecDeque;

use ganger_store::StoredJob;
use ganger_store::rows::by_end::Ends;
use ganger_store::rows::row::from_sql;
use ganger_store::rows::values::Entries;
use ganger_types::query::JobQuery;
use ganger_types::{JobKey, JobState, Queue};
use tokio_postgres::types::Type;

use crate::fault::Fault;
use crate::tables::{Tables, limit_of};

/// The ends of jobs.
pub(crate) struct TableEnds<'a, 't>(pub(crate) &'a Tables<'t>);

impl Ends for TableEnds<'_, '_> {
    type Error = Fault;

    fn places(&mut self, query: &JobQuery) -> Result<Vec<i64>, Fault> {
        let namespace = query.namespace.as_bytes();
        let queue = query.queue.as_ref().map(Queue::as_bytes);
        let rows = self.0.query(
            "SELECT id FROM {s}.places WHERE namespace = $1 AND ($2::bytea IS NULL OR queue = $2)",
            &[(&namespace, Type::BYTEA), (&queue, Type::BYTEA)],
        )?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    fn before(
        &mut self,
        place: i64,
        outcome: JobState,
        before: i64,
        limit: usize,
    ) -> Result<VecDeque<(i64, JobKey)>, Fault> {
        let (outcome, limit) = (i16::from(outcome.number()), limit_of(limit));
        let rows = self.0.query(
            "SELECT ended_order, key FROM {s}.finished
             WHERE place = $1 AND outcome = $2 AND ended_order < $3
             ORDER BY ended_order DESC LIMIT $4",
            &[
                (&place, Type::INT8),
                (&outcome, Type::INT2),
                (&before, Type::INT8),
                (&limit, Type::INT8),
            ],
        )?;
        let ends = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, JobKey(from_sql(row.try_get(1)?)))));
        ends.collect()
    }

    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, Fault> {
        let rows = self.0.job_rows(key)?;
        Ok(rows.map(|rows| StoredJob::new(rows.record, rows.lease)))
    }
}

/// The secondary index as a table of entries and jobs.
pub(crate) struct TableEntries<'a, 't>(pub(crate) &'a Tables<'t>);

impl Entries for TableEntries<'_, '_> {
    type Error = Fault;

    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let rows = self.0.query(
            "SELECT mark FROM {s}.marks WHERE mark >= $1 AND mark < $2 ORDER BY mark LIMIT 1",
            &[(&from, Type::BYTEA), (&to, Type::BYTEA)],
        )?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    fn count(&mut self, from: &[u8], to: &[u8], max: u64) -> Result<(u64, u64), Fault> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let rows = self.0.query(
            "SELECT count(*), count(j.key) FROM
                (SELECT key FROM {s}.marks WHERE mark >= $1 AND mark < $2 LIMIT $3) m
             LEFT JOIN {s}.jobs j USING (key)",
            &[(&from, Type::BYTEA), (&to, Type::BYTEA), (&max, Type::INT8)],
        )?;
        let Some(row) = rows.first() else {
            return Ok((0, 0));
        };
        Ok((from_sql(row.try_get(0)?), from_sql(row.try_get(1)?)))
    }
}
