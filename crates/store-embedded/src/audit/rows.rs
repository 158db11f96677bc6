//! Reads every row, verifies its checksum, record and columns, and counts what the records imply.

use std::collections::BTreeMap;

use ganger_store::Loaded;
use ganger_store::rows::names::SmallTable;
use ganger_store::rows::row::{
    dependency_column, from_sql, log_key, open, open_log, open_record, retention_end, row_key,
    show, slot_key, to_sql,
};
use ganger_store::rows::secondary_index;
use ganger_store::rows::small;
use ganger_types::{
    Group, InputRow, JobKey, JobRecord, JobState, LeaseRecord, Namespace, Queue, Tag,
};
use rusqlite::{Connection, Row, Statement};

use super::AuditReport;
use super::external::ExternalRows;
use super::shards::ShardRows;
use crate::fault::Fault;
use crate::load::read_keyed;
use crate::schema::version_of;

/// Number of rows between two calls of the progress callback.
const PROGRESS_ROWS: u64 = 10_000;

/// Counts and rows collected while reading all tables.
#[derive(Default)]
pub(super) struct Tally {
    /// Number of finished jobs by queue: succeeded, failed, cancelled.
    pub(super) ended: BTreeMap<(Namespace, Queue), [u64; 3]>,
    pub(super) tags: BTreeMap<(Namespace, Tag), u64>,
    pub(super) groups: BTreeMap<(Namespace, Group), u64>,
    pub(super) marks: u64,
    /// Rows of the small tables.
    pub(super) stored: Vec<Loaded>,
    pub(super) shards: ShardRows,
    pub(super) external: ExternalRows,
}

struct Auditor<'a> {
    report: &'a mut AuditReport,
    progress: &'a mut dyn FnMut(u64),
    tally: Tally,
    find_mark: Statement<'a>,
}

pub(super) fn read_all(
    connection: &Connection,
    report: &mut AuditReport,
    progress: &mut dyn FnMut(u64),
) -> Result<Tally, Fault> {
    let sql = "SELECT EXISTS (SELECT 1 FROM marks WHERE mark = ?1 AND key = ?2)";
    let find_mark = connection.prepare(sql)?;
    let mut auditor = Auditor {
        report,
        progress,
        tally: Tally::default(),
        find_mark,
    };
    auditor.each(
        connection,
        "SELECT key, marked, body FROM jobs",
        Auditor::live,
    )?;
    let finished = "SELECT f.key, f.marked, f.body, f.result, f.outcome, f.ended_at, f.ended_order,
        f.own, p.namespace, p.queue FROM finished f LEFT JOIN places p ON p.id = f.place";
    auditor.each(connection, finished, Auditor::finished)?;
    auditor.each(connection, "SELECT key, body FROM leases", Auditor::lease)?;
    auditor.each(connection, "SELECT key, body FROM payloads", |_, row| {
        Auditor::payload(row)
    })?;
    auditor.each(
        connection,
        "SELECT job, slot, upstream, body FROM inputs",
        Auditor::input,
    )?;
    auditor.each(
        connection,
        "SELECT job, attempt, start, body FROM logs",
        |_, row| Auditor::log(row),
    )?;
    find_duplicate_ids(connection, auditor.report)?;
    let version = version_of(connection)?;
    for small in SmallTable::ALL {
        // A store of an older format is audited without upgrading it.
        if small.since() > version {
            continue;
        }
        let sql = format!("SELECT name, body FROM {}", small.table());
        auditor.each(connection, &sql, |auditor, row| auditor.small(small, row))?;
    }
    Ok(auditor.tally)
}

/// Finds several jobs with the same id. A lookup by id would return only one of them.
fn find_duplicate_ids(connection: &Connection, report: &mut AuditReport) -> Result<(), Fault> {
    let sql = "SELECT min(key), max(key), count(*) FROM marks WHERE mark >= ?1 AND mark < ?2
        GROUP BY mark HAVING count(*) > 1";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([secondary_index::ID_FIRST, secondary_index::ID_END])?;
    while let Some(row) = rows.next()? {
        let (first, last, count): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (first, last) = (JobKey(from_sql(first)), JobKey(from_sql(last)));
        let what = format!("{count} jobs have its id, the last of them is number {last}");
        report.add("jobs", first, what);
    }
    Ok(())
}

fn blob<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a [u8], Fault> {
    Ok(row
        .get_ref(column)?
        .as_blob_or_null()
        .ok()
        .flatten()
        .unwrap_or_default())
}

impl Auditor<'_> {
    /// Calls `look` on every row of the query and adds its faults to the report.
    fn each(
        &mut self,
        connection: &Connection,
        sql: &str,
        mut look: impl FnMut(&mut Self, &Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Err(fault) = look(self, row) {
                self.report.add_fault(&fault);
            }
            self.report.rows += 1;
            if self.report.rows.is_multiple_of(PROGRESS_ROWS) {
                (self.progress)(self.report.rows);
            }
        }
        Ok(())
    }

    fn live(&mut self, row: &Row<'_>) -> Result<(), Fault> {
        self.report.live_jobs += 1;
        let key = JobKey(from_sql(row.get(0)?));
        let record = read_keyed("jobs", key, row, 2, |record: &JobRecord| record.key)?;
        if record.state.is_terminal() || record.finished.is_some() {
            self.report
                .add("jobs", key, "a job that has ended is among the live");
        }
        if record.state == JobState::Running {
            self.report.add(
                "jobs",
                key,
                "a stored job says that it runs: only its lease may",
            );
        }
        self.marks("jobs", key, row, &record)?;
        self.words(&record);
        Ok(())
    }

    fn finished(&mut self, row: &Row<'_>) -> Result<(), Fault> {
        self.report.finished_jobs += 1;
        let key = JobKey(from_sql(row.get(0)?));
        let record = read_keyed("finished", key, row, 2, |record: &JobRecord| record.key)?;
        self.marks("finished", key, row, &record)?;
        self.words(&record);
        let Some(end) = &record.finished else {
            self.report.add(
                "finished",
                key,
                "a job without an end is among the finished",
            );
            return Ok(());
        };
        let columns = (row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?);
        let state = end.outcome.state();
        if columns
            != (
                state.number(),
                to_sql(end.at.0),
                to_sql(end.order),
                retention_end(end),
            )
        {
            self.report.add(
                "finished",
                key,
                "its columns do not match its record: retention may err",
            );
        }
        if (blob(row, 8)?, blob(row, 9)?) != (record.namespace.as_bytes(), record.queue.as_bytes())
        {
            self.report.add(
                "finished",
                key,
                "its place does not match its queue: retention may err",
            );
        }
        let queue = (record.namespace.clone(), record.queue.clone());
        let slot = usize::from(state.number() - JobState::Succeeded.number());
        self.tally.ended.entry(queue).or_default()[slot] += 1;
        let sealed = row.get_ref(3)?.as_blob_or_null().unwrap_or_default();
        let length = sealed.map(|sealed| open("results", &row_key(key), sealed).map(<[u8]>::len));
        let length = length
            .transpose()?
            .map(|n| u64::try_from(n).unwrap_or(u64::MAX));
        if length != end.result_bytes {
            let what = format!(
                "its result has {length:?} bytes, its record says {:?}",
                end.result_bytes
            );
            self.report.add("finished", key, what);
        }
        Ok(())
    }

    fn marks(
        &mut self,
        table: &str,
        key: JobKey,
        row: &Row<'_>,
        record: &JobRecord,
    ) -> Result<(), Fault> {
        let marks = secondary_index::of(record);
        if row.get::<_, bool>(1)? == marks.is_empty() {
            self.report
                .add(table, key, "whether it has marks is noted wrongly");
        }
        for mark in marks {
            let is_there: bool = self
                .find_mark
                .query_row((&mark, to_sql(key.0)), |row| row.get(0))?;
            if !is_there {
                let what = "an entry by which it is found is missing: listings may not show it";
                self.report.add(table, key, what);
            }
            self.tally.marks += 1;
        }
        Ok(())
    }

    fn words(&mut self, record: &JobRecord) {
        for tag in &record.tags {
            *self
                .tally
                .tags
                .entry((record.namespace.clone(), tag.clone()))
                .or_default() += 1;
        }
        if let Some(group) = ganger_store::select::failed_group(record) {
            *self
                .tally
                .groups
                .entry((record.namespace.clone(), group.clone()))
                .or_default() += 1;
        }
    }

    fn lease(&mut self, row: &Row<'_>) -> Result<(), Fault> {
        self.report.leases += 1;
        let key = JobKey(from_sql(row.get(0)?));
        read_keyed("leases", key, row, 1, |record: &LeaseRecord| record.key)?;
        Ok(())
    }

    fn payload(row: &Row<'_>) -> Result<(), Fault> {
        let key = JobKey(from_sql(row.get(0)?));
        open("payloads", &row_key(key), blob(row, 1)?)?;
        Ok(())
    }

    fn input(&mut self, row: &Row<'_>) -> Result<(), Fault> {
        let (job, slot) = (JobKey(from_sql(row.get(0)?)), row.get(1)?);
        let at = slot_key(job, slot);
        let input: InputRow = open_record("inputs", &at, blob(row, 3)?)?;
        let dependency = dependency_column(&input.state);
        if row.get::<_, Option<i64>>(2)? != dependency || (input.job, input.slot) != (job, slot) {
            self.report
                .add("inputs", show(&at), "its columns do not match its record");
        }
        Ok(())
    }

    fn log(row: &Row<'_>) -> Result<(), Fault> {
        let job = JobKey(from_sql(row.get(0)?));
        let at = log_key(job, row.get(1)?, from_sql(row.get(2)?));
        open_log(&at, blob(row, 3)?)?;
        Ok(())
    }

    fn small(&mut self, small: SmallTable, row: &Row<'_>) -> Result<(), Fault> {
        let loaded = small::read(small, blob(row, 0)?, blob(row, 1)?)?;
        if self.tally.shards.add(small, &loaded) || self.tally.external.add(&loaded) {
            return Ok(());
        }
        if matches!(
            loaded,
            Loaded::Queue(_) | Loaded::TagCount(..) | Loaded::GroupCount(..)
        ) {
            self.tally.stored.push(loaded);
        }
        Ok(())
    }
}
