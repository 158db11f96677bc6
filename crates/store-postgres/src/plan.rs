//! Which rows a checkpoint writes and deletes: made from merged commits, without the database.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ganger_store::merge::{Body, JobChange, MergedCommit};
use ganger_store::rows::names::{SmallTable, row_name};
use ganger_store::rows::row::{
    dependency_column, log_key, retention_end, row_key, seal_bytes, seal_log, seal_record,
    slot_key, to_sql,
};
use ganger_store::rows::secondary_index::{self, IndexEntry};
use ganger_store::rows::small;
use ganger_types::{Bytes, Finished, JobKey, JobRecord, Namespace, Queue};

use crate::columns::{Column, Insert};
use crate::fault::Fault;
use crate::names::Names;
use crate::row_columns::{FinishedRows, JobRows, KeyedNames, KeyedRows};

/// Numbers that stand for a (namespace, queue) in the table `finished`; the table `places` defines them.
pub(crate) type Places = HashMap<(Namespace, Queue), i64>;

/// What a statement's rows count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Nothing,
    Jobs,
    Leases,
    Finished,
}

/// Rows of one table to delete or to update.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// The statement, which takes the columns as arrays; after them the smallest and the largest job number, if it
    /// has such.
    pub(crate) sql: String,
    pub(crate) columns: Vec<Column>,
    /// Smallest and largest job number, by which tables of other ranges are left alone.
    pub(crate) bounds: Option<(i64, i64)>,
    /// What the deleted rows counted as.
    pub(crate) counted: Counted,
}

/// The statements of a checkpoint, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Deletions and updates of stored rows.
    pub(crate) changes: Vec<Change>,
    pub(crate) inserts: Vec<(Insert, Counted)>,
}

/// Makes the plan of a checkpoint from the changes of its commits.
pub(crate) struct Planner<'a> {
    names: &'a Names,
    /// First number that no row of `jobs` or `finished` has, nor any number above it.
    new_from: JobKey,
    places: &'a Places,
    /// Index entries of stored rows that are replaced or removed.
    old: &'a HashMap<JobKey, Vec<IndexEntry>>,
    jobs_new: JobRows,
    jobs: JobRows,
    finished: FinishedRows,
    replaced: FinishedRows,
    payloads_new: KeyedRows,
    payloads: KeyedRows,
    leases: KeyedRows,
    removed: Vec<i64>,
    /// Jobs without a row among the live any more.
    ended: Vec<i64>,
    /// Jobs without a row among the finished any more.
    retried: Vec<i64>,
    leases_ended: Vec<i64>,
    marks_new: (Vec<Vec<u8>>, Vec<i64>),
    marks_gone: (Vec<Vec<u8>>, Vec<i64>),
    buffer: Vec<u8>,
}

/// Returns the (namespace, queue) of every job that has ended.
pub(crate) fn places_of<'m>(
    merged: &'m MergedCommit<'m>,
) -> impl Iterator<Item = (&'m Namespace, &'m Queue)> {
    merged.jobs.values().filter_map(|change| match change.body {
        Body::Finished(record, _) | Body::Replace(record) => {
            Some((&record.namespace, &record.queue))
        }
        _ => None,
    })
}

/// Returns the numbers of stored jobs whose index entries may change.
pub(crate) fn rewritten(merged: &MergedCommit<'_>, new_from: JobKey) -> Vec<i64> {
    let stored = merged.jobs.range(..new_from);
    stored
        .filter(|(_, change)| change.is_removed || change.is_retried || change.body != Body::Same)
        .map(|(key, _)| to_sql(key.0))
        .collect()
}

/// Returns the ranges of job numbers that the rows need.
pub(crate) fn parts_of(merged: &MergedCommit<'_>, bits: u32) -> BTreeSet<u64> {
    let jobs = merged.jobs.keys().copied();
    let inputs = merged.inputs.keys().map(|(job, _)| *job);
    let logs = merged.logs.iter().map(|piece| piece.key);
    jobs.chain(inputs)
        .chain(logs)
        .map(|key| key.0 >> bits)
        .collect()
}

impl<'a> Planner<'a> {
    pub(crate) fn new(
        names: &'a Names,
        new_from: JobKey,
        places: &'a Places,
        old: &'a HashMap<JobKey, Vec<IndexEntry>>,
    ) -> Self {
        Self {
            names,
            new_from,
            places,
            old,
            jobs_new: JobRows::default(),
            jobs: JobRows::default(),
            finished: FinishedRows::default(),
            replaced: FinishedRows::default(),
            payloads_new: KeyedRows::default(),
            payloads: KeyedRows::default(),
            leases: KeyedRows::default(),
            removed: Vec::new(),
            ended: Vec::new(),
            retried: Vec::new(),
            leases_ended: Vec::new(),
            marks_new: Default::default(),
            marks_gone: Default::default(),
            buffer: Vec::with_capacity(1_024),
        }
    }

    /// Returns the statements for merged commits.
    ///
    /// # Errors
    /// If they contradict themselves.
    pub(crate) fn plan(mut self, merged: &MergedCommit<'_>) -> Result<Plan, Fault> {
        for (key, change) in &merged.jobs {
            self.job(*key, change)?;
        }
        let mut plan = Plan::default();
        self.put_inputs(merged, &mut plan);
        self.put_logs(merged, &mut plan);
        self.put_small(merged, &mut plan);
        Ok(self.finish(plan))
    }

    fn job(&mut self, key: JobKey, change: &JobChange<'_>) -> Result<(), Fault> {
        let is_new = key >= self.new_from;
        let number = to_sql(key.0);
        if change.is_removed {
            if !is_new {
                self.removed.push(number);
                self.mark(key, &[]);
            }
            return Ok(());
        }
        if change.is_retried && !is_new {
            self.retried.push(number);
        }
        match change.body {
            Body::Same if change.is_retried => self.mark(key, &[]),
            Body::Same => {}
            Body::Live(record) => self.put_live(record, is_new),
            Body::Finished(record, result) => {
                if !is_new {
                    self.ended.push(number);
                }
                self.put_finished(record, Some(result))?;
            }
            Body::Replace(record) => self.put_finished(record, None)?,
        }
        if let Some(payload) = change.payload {
            let mut sealed = Vec::with_capacity(payload.len() + 4);
            seal_bytes("payloads", &row_key(key), payload, &mut sealed);
            let rows = if is_new {
                &mut self.payloads_new
            } else {
                &mut self.payloads
            };
            rows.push(key, sealed);
        }
        match change.lease {
            None => {}
            Some(Some(lease)) => {
                seal_record("leases", &row_key(key), lease, &mut self.buffer);
                self.leases.push(key, self.buffer.clone());
            }
            Some(None) if is_new => {}
            Some(None) => self.leases_ended.push(number),
        }
        Ok(())
    }

    fn put_live(&mut self, record: &JobRecord, is_new: bool) {
        seal_record("jobs", &row_key(record.key), record, &mut self.buffer);
        let rows = if is_new {
            &mut self.jobs_new
        } else {
            &mut self.jobs
        };
        rows.rows.push(record.key, self.buffer.clone());
        rows.marked.push(secondary_index::has_entries(record));
        self.mark_record(record);
    }

    /// Writes a finished job; without a result one that keeps the stored result.
    fn put_finished(
        &mut self,
        record: &JobRecord,
        result: Option<Option<&Bytes>>,
    ) -> Result<(), Fault> {
        let end = end_of(record)?;
        let place = (record.namespace.clone(), record.queue.clone());
        let place = self.places.get(&place).copied();
        let place = place.expect("the places of ended jobs are looked up before");
        let at = row_key(record.key);
        seal_record("finished", &at, record, &mut self.buffer);
        let rows = if result.is_some() {
            &mut self.finished
        } else {
            &mut self.replaced
        };
        rows.rows.push(record.key, self.buffer.clone());
        rows.marked.push(secondary_index::has_entries(record));
        rows.places.push(place);
        rows.outcomes.push(end.outcome.state().number().into());
        rows.ended_at.push(to_sql(end.at.0));
        rows.ended_order.push(to_sql(end.order));
        rows.own.push(retention_end(end));
        rows.results.push(result.flatten().map(|result| {
            let mut sealed = Vec::with_capacity(result.len() + 4);
            seal_bytes("results", &at, result, &mut sealed);
            sealed
        }));
        self.mark_record(record);
        Ok(())
    }

    fn mark_record(&mut self, record: &JobRecord) {
        if secondary_index::has_entries(record) {
            self.mark(record.key, &secondary_index::of(record));
        } else {
            self.mark(record.key, &[]);
        }
    }

    /// Changes the secondary index by the difference between the stored entries of a job and the new ones.
    fn mark(&mut self, key: JobKey, new: &[IndexEntry]) {
        let old = self.old.get(&key).map_or(&[][..], Vec::as_slice);
        for mark in old.iter().filter(|mark| !new.contains(mark)) {
            self.marks_gone.0.push(mark.clone());
            self.marks_gone.1.push(to_sql(key.0));
        }
        for mark in new.iter().filter(|mark| !old.contains(mark)) {
            self.marks_new.0.push(mark.clone());
            self.marks_new.1.push(to_sql(key.0));
        }
    }

    fn put_inputs(&mut self, merged: &MergedCommit<'_>, plan: &mut Plan) {
        let (mut jobs, mut slots, mut dependencies, mut bodies) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut gone_jobs, mut gone_slots) = (Vec::new(), Vec::new());
        for ((job, slot), row) in &merged.inputs {
            let (number, column) = (to_sql(job.0), i64::from(*slot));
            let Some(row) = row else {
                gone_jobs.push(number);
                gone_slots.push(column);
                continue;
            };
            seal_record("inputs", &slot_key(*job, *slot), *row, &mut self.buffer);
            jobs.push(number);
            slots.push(column);
            dependencies.push(dependency_column(&row.state));
            bodies.push(self.buffer.clone());
        }
        let bounds = bounds(&gone_jobs);
        plan.change(
            self.names.sql(
                "DELETE FROM {s}.inputs USING unnest($1::int8[], $2::int8[]) AS gone (j, n)
                 WHERE job = j AND slot = n AND job BETWEEN $3 AND $4",
            ),
            vec![Column::Int8(gone_jobs), Column::Int8(gone_slots)],
            bounds,
            Counted::Nothing,
        );
        let insert = Insert {
            table: self.names.sql("{s}.inputs"),
            names: "job, slot, dependency, body",
            columns: vec![
                Column::Int8(jobs),
                Column::Int8(slots),
                Column::Int8Option(dependencies),
                Column::Bytes(bodies),
            ],
            conflict: "ON CONFLICT (job, slot) DO UPDATE
                SET dependency = excluded.dependency, body = excluded.body",
        };
        plan.insert(insert, Counted::Nothing);
    }

    fn put_logs(&mut self, merged: &MergedCommit<'_>, plan: &mut Plan) {
        // Of pieces at the same place the last counts; a statement cannot write a row twice.
        let mut last = BTreeMap::new();
        for piece in &merged.logs {
            last.insert((piece.key, piece.attempt, piece.offset), piece);
        }
        let (mut jobs, mut attempts, mut starts, mut bodies) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for ((key, attempt, offset), piece) in last {
            let at = log_key(key, attempt, offset);
            seal_log(&at, piece.at, piece.bytes, &mut self.buffer);
            jobs.push(to_sql(key.0));
            attempts.push(i64::from(attempt));
            starts.push(to_sql(offset));
            bodies.push(self.buffer.clone());
        }
        let insert = Insert {
            table: self.names.sql("{s}.logs"),
            names: "job, attempt, start, body",
            columns: vec![
                Column::Int8(jobs),
                Column::Int8(attempts),
                Column::Int8(starts),
                Column::Bytes(bodies),
            ],
            conflict: "ON CONFLICT (job, attempt, start) DO UPDATE SET body = excluded.body",
        };
        plan.insert(insert, Counted::Nothing);
    }

    fn put_small(&mut self, merged: &MergedCommit<'_>, plan: &mut Plan) {
        let mut tables: Vec<(SmallTable, KeyedNames, Vec<Vec<u8>>)> = Vec::new();
        for (key, change) in &merged.rows {
            let (table, name) = row_name(key);
            if tables.last().is_none_or(|(last, ..)| *last != table) {
                tables.push((table, KeyedNames::default(), Vec::new()));
            }
            let (_, put, gone) = tables.last_mut().expect("one was just added");
            if small::encode(table.table(), &name, change, &mut self.buffer) {
                put.names.push(name);
                put.bodies.push(self.buffer.clone());
            } else {
                gone.push(name);
            }
        }
        for (table, put, gone) in tables {
            let table = format!("{}.{}", self.names.schema, table.table());
            let sql = format!("DELETE FROM {table} WHERE name = ANY($1)");
            plan.change(sql, vec![Column::Bytes(gone)], None, Counted::Nothing);
            let insert = Insert {
                table,
                names: "name, body",
                columns: vec![Column::Bytes(put.names), Column::Bytes(put.bodies)],
                conflict: "ON CONFLICT (name) DO UPDATE SET body = excluded.body",
            };
            plan.insert(insert, Counted::Nothing);
        }
    }

    /// Adds the statements for the rows of jobs.
    fn finish(self, mut plan: Plan) -> Plan {
        self.delete_rows(&mut plan);
        let (sql, columns) = self.replaced.update(self.names);
        let within = bounds(&self.replaced.rows.keys);
        plan.change(sql, columns, within, Counted::Nothing);
        // A row that has vanished is inserted below: its new content is known.
        let table = |name: &str| format!("{}.{name}", self.names.schema);
        let (marks, keys) = self.marks_new;
        let marks = Insert {
            table: table("marks"),
            names: "mark, key",
            columns: vec![Column::Bytes(marks), Column::Int8(keys)],
            conflict: "ON CONFLICT DO NOTHING",
        };
        plan.insert(marks, Counted::Nothing);
        let jobs = table("jobs");
        plan.insert(self.jobs_new.insert(jobs.clone(), ""), Counted::Jobs);
        plan.insert(
            self.jobs.insert(
                jobs,
                "ON CONFLICT (key) DO UPDATE SET marked = excluded.marked, body = excluded.body
                 RETURNING (xmax = 0)",
            ),
            Counted::Jobs,
        );
        let finished = table("finished");
        plan.insert(
            self.finished.insert(finished.clone(), ""),
            Counted::Finished,
        );
        plan.insert(
            self.replaced
                .insert(finished, "ON CONFLICT (key) DO NOTHING RETURNING true"),
            Counted::Finished,
        );
        let payloads = table("payloads");
        plan.insert(
            self.payloads_new.insert(payloads.clone(), ""),
            Counted::Nothing,
        );
        let replace = "ON CONFLICT (key) DO UPDATE SET body = excluded.body";
        plan.insert(self.payloads.insert(payloads, replace), Counted::Nothing);
        plan.insert(
            self.leases.insert(
                table("leases"),
                "ON CONFLICT (key) DO UPDATE SET body = excluded.body RETURNING (xmax = 0)",
            ),
            Counted::Leases,
        );
        plan
    }

    fn delete_rows(&self, plan: &mut Plan) {
        let by_key = |table: &str| {
            self.names
                .sql(&format!("DELETE FROM {{s}}.{table} WHERE key = ANY($1)"))
        };
        let ranged = |table: &str, column: &str| {
            self.names.sql(&format!(
                "DELETE FROM {{s}}.{table} WHERE {column} = ANY($1) AND {column} BETWEEN $2 AND $3"
            ))
        };
        let live = [&self.removed[..], &self.ended].concat();
        plan.change(
            by_key("jobs"),
            vec![Column::Int8(live)],
            None,
            Counted::Jobs,
        );
        let leases = [&self.removed[..], &self.leases_ended].concat();
        plan.change(
            by_key("leases"),
            vec![Column::Int8(leases)],
            None,
            Counted::Leases,
        );
        let finished = [&self.removed[..], &self.retried].concat();
        let within = bounds(&finished);
        plan.change(
            ranged("finished", "key"),
            vec![Column::Int8(finished)],
            within,
            Counted::Finished,
        );
        for (table, column) in [("payloads", "key"), ("inputs", "job"), ("logs", "job")] {
            // Rows that the same checkpoint writes belong to other jobs.
            plan.change(
                ranged(table, column),
                vec![Column::Int8(self.removed.clone())],
                bounds(&self.removed),
                Counted::Nothing,
            );
        }
        let (marks, keys) = &self.marks_gone;
        plan.change(
            self.names.sql(
                "DELETE FROM {s}.marks USING unnest($1::bytea[], $2::int8[]) AS gone (m, k)
                 WHERE mark = m AND key = k AND key BETWEEN $3 AND $4",
            ),
            vec![Column::Bytes(marks.clone()), Column::Int8(keys.clone())],
            bounds(keys),
            Counted::Nothing,
        );
    }
}

impl Plan {
    fn change(
        &mut self,
        sql: String,
        columns: Vec<Column>,
        bounds: Option<(i64, i64)>,
        counted: Counted,
    ) {
        if columns.first().is_some_and(|column| !column.is_empty()) {
            self.changes.push(Change {
                sql,
                columns,
                bounds,
                counted,
            });
        }
    }

    fn insert(&mut self, insert: Insert, counted: Counted) {
        if insert.rows() > 0 {
            self.inserts.push((insert, counted));
        }
    }
}

fn end_of(record: &JobRecord) -> Result<&Finished, Fault> {
    let missing = || Fault::Damaged(format!("job {} is finished without an end", record.key));
    record.finished.as_ref().ok_or_else(missing)
}

/// Returns the smallest and the largest number.
fn bounds(keys: &[i64]) -> Option<(i64, i64)> {
    Some((*keys.iter().min()?, *keys.iter().max()?))
}
