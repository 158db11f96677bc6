//! Writes the merged rows of a commit. The caller begins and ends the transaction.
//!
//! A job usually needs no lookup: a number beyond every known one is new, and a row whose column `marked` is 0 has no
//! entries in the secondary index. Only otherwise is the old record read.

use std::collections::HashMap;

use ganger_store::merge::{Body, JobChange, LogPiece, MergedCommit};
use ganger_store::rows::counts::Counts;
use ganger_store::rows::row::{
    dependency_column, log_key, open_record, retention_end, row_key, seal_bytes, seal_log,
    seal_record, slot_key, to_sql,
};
use ganger_store::rows::secondary_index::{self, IndexEntry};
use ganger_types::{Bytes, Finished, InputRow, JobKey, JobRecord, LeaseRecord, Namespace, Queue};
use rusqlite::{Connection, OptionalExtension};

use crate::fault::Fault;
use crate::run::{JobRun, RunKind};
use crate::small::RowWriter;
use crate::statements::{LazyStatement, Statements};

/// Numbers that stand for a (namespace, queue) in the table `finished`; the table `places` defines them.
pub(crate) type QueueNumbers = HashMap<(Namespace, Queue), i64>;

/// Writes the rows of one commit.
pub(crate) struct CommitWriter<'a> {
    connection: &'a Connection,
    statements: Statements<'a>,
    queue_numbers: &'a mut QueueNumbers,
    /// First number that no row of `jobs` or `finished` has, nor any number above it.
    new_from: JobKey,
    /// Row counts after the commit.
    pub(crate) counts: Counts,
    buffer: Vec<u8>,
}

impl<'a> CommitWriter<'a> {
    pub(crate) fn new(
        connection: &'a Connection,
        queue_numbers: &'a mut QueueNumbers,
        new_from: JobKey,
        counts: Counts,
    ) -> Self {
        Self {
            connection,
            statements: Statements::of(connection),
            queue_numbers,
            new_from,
            counts,
            buffer: Vec::with_capacity(1_024),
        }
    }

    /// Writes all rows of the commit.
    pub(crate) fn write(&mut self, merged: &MergedCommit<'_>) -> Result<(), Fault> {
        for run in JobRun::all(&merged.jobs, self.new_from) {
            self.write_run(&run)?;
        }
        for ((job, slot), row) in &merged.inputs {
            match row {
                Some(row) => self.put_input(row)?,
                None => {
                    self.statements
                        .delete_input
                        .execute((to_sql(job.0), slot))?;
                }
            }
        }
        merged
            .logs
            .iter()
            .try_for_each(|piece| self.put_log(piece))?;
        let mut rows = RowWriter::new(self.connection);
        for (key, change) in &merged.rows {
            rows.write(key, change, &mut self.buffer)?;
        }
        Ok(())
    }

    fn is_new(&self, key: JobKey) -> bool {
        key >= self.new_from
    }

    /// Writes a run. Deletions are made for the whole run at once: a statement costs as much as a few rows.
    fn write_run(&mut self, run: &JobRun<'_>) -> Result<(), Fault> {
        match run.kind {
            RunKind::Usual => {
                let mut jobs = run.jobs.iter();
                return jobs.try_for_each(|(key, change)| self.write_job(*key, change));
            }
            RunKind::Removed => return self.remove(run),
            RunKind::Ended => {}
        }
        let are_unmarked = self.delete_live(run.keys())? == run.jobs.len();
        self.end_leases(run.keys())?;
        for (key, change) in &run.jobs {
            let Body::Finished(record, result) = change.body else {
                continue;
            };
            let old = if are_unmarked {
                Vec::new()
            } else {
                self.take_live(*key)?
            };
            self.finish(record, result, &old)?;
            self.put_payload(*key, change)?;
        }
        Ok(())
    }

    fn write_job(&mut self, key: JobKey, change: &JobChange<'_>) -> Result<(), Fault> {
        if change.is_removed {
            // The commit both creates and removes the job.
            return Ok(());
        }
        let mut old = Vec::new();
        if change.is_retried {
            old = self.take_finished(key)?;
        }
        match change.body {
            Body::Same => {}
            Body::Live(record) => self.put_live(record, old)?,
            Body::Finished(record, result) => {
                if !self.is_new(key) {
                    old.extend(self.take_live(key)?);
                }
                self.finish(record, result, &old)?;
            }
            Body::Replace(record) => self.put_replaced(record)?,
        }
        self.put_payload(key, change)?;
        match change.lease {
            None => Ok(()),
            Some(Some(lease)) => self.put_lease(lease),
            Some(None) if self.is_new(key) => Ok(()),
            Some(None) => self.end_leases((key, key)),
        }
    }

    fn put_payload(&mut self, key: JobKey, change: &JobChange<'_>) -> Result<(), Fault> {
        if let Some(payload) = change.payload {
            seal_bytes("payloads", &row_key(key), payload, &mut self.buffer);
            self.statements
                .put_payload
                .execute((to_sql(key.0), &self.buffer))?;
        }
        Ok(())
    }

    fn put_live(&mut self, record: &JobRecord, mut old: Vec<IndexEntry>) -> Result<(), Fault> {
        let key = to_sql(record.key.0);
        let is_marked = secondary_index::has_entries(record);
        seal_record("jobs", &row_key(record.key), record, &mut self.buffer);
        let mut is_there = false;
        if !self.is_new(record.key) {
            if !is_marked && old.is_empty() {
                is_there = self
                    .statements
                    .update_unmarked
                    .execute((key, &self.buffer))?
                    == 1;
                if is_there {
                    return Ok(());
                }
            }
            if let Some(body) = select_body(&mut self.statements.select_job, key)? {
                is_there = true;
                old.extend(self.entries_of("jobs", record.key, &body)?);
            }
        }
        if is_there {
            self.statements
                .update_job
                .execute((key, is_marked, &self.buffer))?;
        } else {
            self.statements
                .insert_job
                .execute((key, is_marked, &self.buffer))?;
            self.counts.jobs += 1;
        }
        self.update_index(record, &old)
    }

    fn finish(
        &mut self,
        record: &JobRecord,
        result: Option<&Bytes>,
        old: &[IndexEntry],
    ) -> Result<(), Fault> {
        let end = end_of(record)?;
        let queue = self.queue_number(record)?;
        let at = row_key(record.key);
        seal_record("finished", &at, record, &mut self.buffer);
        let result = result.map(|result| {
            let mut sealed = Vec::with_capacity(result.len() + 4);
            seal_bytes("results", &at, result, &mut sealed);
            sealed
        });
        self.statements.insert_finished.execute((
            to_sql(record.key.0),
            secondary_index::has_entries(record),
            queue,
            end.outcome.state().number(),
            to_sql(end.at.0),
            to_sql(end.order),
            retention_end(end),
            &self.buffer,
            result,
        ))?;
        self.counts.finished += 1;
        self.update_index(record, old)
    }

    fn put_replaced(&mut self, record: &JobRecord) -> Result<(), Fault> {
        let key = to_sql(record.key.0);
        let Some(body) = select_body(&mut self.statements.select_finished, key)? else {
            // The row was there when the commit was accepted. Its new content is known.
            tracing::error!(
                key,
                "the row of a finished job has vanished: it is written again, without a result"
            );
            return self.finish(record, None, &[]);
        };
        let old = self.entries_of("finished", record.key, &body)?;
        let end = end_of(record)?;
        let queue = self.queue_number(record)?;
        seal_record("finished", &row_key(record.key), record, &mut self.buffer);
        self.statements.update_finished.execute((
            key,
            secondary_index::has_entries(record),
            queue,
            end.outcome.state().number(),
            to_sql(end.at.0),
            to_sql(end.order),
            retention_end(end),
            &self.buffer,
        ))?;
        self.update_index(record, &old)
    }

    /// Removes live rows without index entries; returns their number.
    fn delete_live(&mut self, keys: (JobKey, JobKey)) -> Result<usize, Fault> {
        let deleted = self.statements.delete_unmarked.execute(between(keys))?;
        subtract(&mut self.counts.jobs, deleted);
        Ok(deleted)
    }

    /// Removes finished rows without index entries, with their results; returns their number.
    fn delete_finished(&mut self, keys: (JobKey, JobKey)) -> Result<usize, Fault> {
        let delete = &mut self.statements.delete_finished_unmarked;
        let deleted = delete.execute(between(keys))?;
        subtract(&mut self.counts.finished, deleted);
        Ok(deleted)
    }

    /// Removes the live row; returns the index entries that it still has.
    fn take_live(&mut self, key: JobKey) -> Result<Vec<IndexEntry>, Fault> {
        if self.delete_live((key, key))? == 1 {
            return Ok(Vec::new());
        }
        let number = to_sql(key.0);
        let Some(body) = select_body(&mut self.statements.select_job, number)? else {
            return Ok(Vec::new());
        };
        subtract(
            &mut self.counts.jobs,
            self.statements.delete_job.execute([number])?,
        );
        self.entries_of("jobs", key, &body)
    }

    /// Removes the finished row and its result; returns the index entries that it still has.
    fn take_finished(&mut self, key: JobKey) -> Result<Vec<IndexEntry>, Fault> {
        if self.delete_finished((key, key))? == 1 {
            return Ok(Vec::new());
        }
        let number = to_sql(key.0);
        let Some(body) = select_body(&mut self.statements.select_finished, number)? else {
            return Ok(Vec::new());
        };
        subtract(
            &mut self.counts.finished,
            self.statements.delete_finished.execute([number])?,
        );
        self.entries_of("finished", key, &body)
    }

    /// Removes all rows of these jobs.
    ///
    /// Most of these jobs have ended and have no index entries. An ended job has no row in `jobs` or `leases`.
    fn remove(&mut self, run: &JobRun<'_>) -> Result<(), Fault> {
        let keys = run.keys();
        if self.delete_finished(keys)? < run.jobs.len() {
            self.end_leases(keys)?;
            for (key, _) in &run.jobs {
                let mut old = self.take_finished(*key)?;
                old.extend(self.take_live(*key)?);
                for mark in &old {
                    let entry = (mark, to_sql(key.0));
                    self.statements.delete_mark.execute(entry)?;
                }
            }
        }
        let keys = between(keys);
        self.statements.delete_payloads.execute(keys)?;
        self.statements.delete_inputs.execute(keys)?;
        self.statements.delete_logs.execute(keys)?;
        Ok(())
    }

    fn put_lease(&mut self, lease: &LeaseRecord) -> Result<(), Fault> {
        let key = to_sql(lease.key.0);
        seal_record("leases", &row_key(lease.key), lease, &mut self.buffer);
        if self.statements.insert_lease.execute((key, &self.buffer))? == 1 {
            self.counts.leases += 1;
        } else {
            self.statements.update_lease.execute((key, &self.buffer))?;
        }
        Ok(())
    }

    fn end_leases(&mut self, keys: (JobKey, JobKey)) -> Result<(), Fault> {
        let ended = self.statements.delete_leases.execute(between(keys))?;
        subtract(&mut self.counts.leases, ended);
        Ok(())
    }

    fn put_input(&mut self, row: &InputRow) -> Result<(), Fault> {
        seal_record(
            "inputs",
            &slot_key(row.job, row.slot),
            row,
            &mut self.buffer,
        );
        let job = to_sql(row.job.0);
        self.statements.put_input.execute((
            job,
            row.slot,
            dependency_column(&row.state),
            &self.buffer,
        ))?;
        Ok(())
    }

    fn put_log(&mut self, piece: &LogPiece<'_>) -> Result<(), Fault> {
        let at = log_key(piece.key, piece.attempt, piece.offset);
        seal_log(&at, piece.at, piece.bytes, &mut self.buffer);
        self.statements.put_log.execute((
            to_sql(piece.key.0),
            piece.attempt,
            to_sql(piece.offset),
            &self.buffer,
        ))?;
        Ok(())
    }

    /// Changes the secondary index by the difference between the entries of `record` and `old`.
    fn update_index(&mut self, record: &JobRecord, old: &[IndexEntry]) -> Result<(), Fault> {
        if old.is_empty() && !secondary_index::has_entries(record) {
            return Ok(());
        }
        let (key, new) = (to_sql(record.key.0), secondary_index::of(record));
        for mark in old.iter().filter(|mark| !new.contains(mark)) {
            self.statements.delete_mark.execute((mark, key))?;
        }
        for mark in new.iter().filter(|mark| !old.contains(mark)) {
            self.statements.insert_mark.execute((mark, key))?;
        }
        Ok(())
    }

    /// Returns the index entries of a stored row, which is about to be replaced or removed.
    ///
    /// A damaged row does not say which entries it has. The commit was acknowledged, so they are looked up one by one.
    fn entries_of(&self, table: &str, key: JobKey, body: &[u8]) -> Result<Vec<IndexEntry>, Fault> {
        match open_record(table, &row_key(key), body) {
            Ok(record) => Ok(secondary_index::of(&record)),
            Err(fault) => {
                tracing::error!(?fault, "a damaged row is replaced or removed");
                find_all_entries(self.connection, key)
            }
        }
    }

    fn queue_number(&mut self, record: &JobRecord) -> Result<i64, Fault> {
        let name = (record.namespace.clone(), record.queue.clone());
        if let Some(number) = self.queue_numbers.get(&name) {
            return Ok(*number);
        }
        let (namespace, queue) = (record.namespace.as_bytes(), record.queue.as_bytes());
        let found = find_queue_number(self.connection, &record.namespace, &record.queue)?;
        let number = if let Some(number) = found {
            number
        } else {
            let sql = "INSERT INTO places (namespace, queue) VALUES (?1, ?2)";
            self.connection.execute(sql, (namespace, queue))?;
            self.connection.last_insert_rowid()
        };
        self.queue_numbers.insert(name, number);
        Ok(number)
    }
}

/// Returns the bounds of a run as SQLite integers.
fn between((first, last): (JobKey, JobKey)) -> (i64, i64) {
    (to_sql(first.0), to_sql(last.0))
}

fn subtract(count: &mut u64, deleted: usize) {
    *count = count.saturating_sub(u64::try_from(deleted).unwrap_or(u64::MAX));
}

/// Returns the number of a (namespace, queue); `None` if no job of it has ended.
pub(crate) fn find_queue_number(
    connection: &Connection,
    namespace: &Namespace,
    queue: &Queue,
) -> Result<Option<i64>, Fault> {
    let sql = "SELECT id FROM places WHERE namespace = ?1 AND queue = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let parts = (namespace.as_bytes(), queue.as_bytes());
    Ok(statement.query_row(parts, |row| row.get(0)).optional()?)
}

/// Reads all index entries of a job by reading the whole index, which no usual commit needs.
fn find_all_entries(connection: &Connection, key: JobKey) -> Result<Vec<IndexEntry>, Fault> {
    let mut statement = connection.prepare_cached("SELECT mark FROM marks WHERE key = ?1")?;
    let entries = statement.query_map([to_sql(key.0)], |row| row.get(0))?;
    Ok(entries.collect::<Result<_, _>>()?)
}

fn select_body(statement: &mut LazyStatement<'_>, key: i64) -> Result<Option<Vec<u8>>, Fault> {
    Ok(statement
        .get()?
        .query_row([key], |row| row.get(0))
        .optional()?)
}

fn end_of(record: &JobRecord) -> Result<&Finished, Fault> {
    let missing = || Fault::Inconsistent(format!("job {} is finished without an end", record.key));
    record.finished.as_ref().ok_or_else(missing)
}
