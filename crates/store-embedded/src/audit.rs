//! The audit of a store, at rest or in use: every row read, every count counted again (`rel A1`).

mod at_rest;
mod cross;
mod in_use;
mod keys;
mod qless;
mod rows;
mod shards;

use std::fmt;
use std::path::Path;

use ganger_store::StoreError;
use rusqlite::Connection;

use crate::create::beside;
use crate::fault::Fault;
use crate::lock::Lock;
use crate::{connect, recover, turns};

/// Findings kept in words; more are only counted.
const FINDINGS_MAX: usize = 1_000;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// In which table; empty if in none.
    pub table: String,
    /// Which row; empty if none.
    pub row: String,
    /// What is wrong, and what is affected.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.table.as_str(), self.row.as_str()) {
            ("", _) => write!(f, "{}", self.what),
            (table, "") => write!(f, "table {table}: {}", self.what),
            (table, row) => write!(f, "table {table}, row {row}: {}", self.what),
        }
    }
}

/// What the audit saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Number of live jobs.
    pub live_jobs: u64,
    /// Number of finished jobs.
    pub finished_jobs: u64,
    /// Number of live leases.
    pub leases: u64,
    /// Number of rows of qless.
    pub qless_rows: u64,
    /// Rows read, of all tables.
    pub rows: u64,
    /// Sequence of the last commit that was looked at.
    pub sequence: u64,
    /// Later commits, in the turn log: intact, but a store in use has not written them into its tables in time.
    pub waiting: u64,
    /// What cannot be judged: a commit whose write was cut, so it was not acknowledged, or one that is damaged.
    pub doubt: Option<String>,
    /// What is wrong; empty is good. At most 1,000 of them.
    pub findings: Vec<Finding>,
    /// How many more there were.
    pub findings_dropped: u64,
}

impl AuditReport {
    /// Whether all is well.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn add(&mut self, table: &str, row: impl fmt::Display, what: impl fmt::Display) {
        if self.findings.len() == FINDINGS_MAX {
            self.findings_dropped += 1;
            return;
        }
        let (row, what) = (row.to_string(), what.to_string());
        self.findings.push(Finding {
            table: table.to_owned(),
            row,
            what,
        });
    }

    fn add_fault(&mut self, fault: &Fault) {
        match fault {
            Fault::Damaged(what) | Fault::Inconsistent(what) => self.add("", "", what),
            Fault::Sql(error) => self.add("", "", error),
            Fault::Store(error) => self.add("", "", error),
        }
    }
}

/// Audits the store in the file `path` as of one commit, whether a server uses it or not, and writes
/// nothing into it. `progress` is told the rows read so far, now and then. A store in use keeps its
/// log growing for as long as the audit takes.
///
/// # Errors
/// If the file cannot be read at all, is no store, or is newer than this program. Damage is no error:
/// it is what the report is for.
pub fn check(
    path: impl AsRef<Path>,
    mut progress: impl FnMut(u64),
) -> Result<AuditReport, StoreError> {
    let path = path.as_ref();
    let mut report = AuditReport::default();
    connect::inspect(path)?;
    let audited = if has_logs(path) {
        match Lock::take(path) {
            Ok(_lock) => at_rest::audit(path, &mut report, &mut progress),
            Err(StoreError::InUse { .. }) => in_use::audit(path, &mut report, &mut progress),
            Err(error) => Err(error),
        }
    } else {
        recover::rest(path).and_then(|_| tables_only(path, &mut report, &mut progress))
    };
    match audited {
        Err(StoreError::Damaged { what, .. }) => report.add("", "", what),
        other => other?,
    }
    Ok(report)
}

/// Without one the store was closed well, and nobody uses it. It may be where nothing can be written.
fn has_logs(path: &Path) -> bool {
    beside(path, "-wal").exists() || turns::path_of(path).exists()
}

/// Audits what the tables have.
fn tables_only(
    path: &Path,
    report: &mut AuditReport,
    progress: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    let connection = connect::reader(path)?;
    let mut found = || -> Result<(), Fault> {
        let tx = connection.unchecked_transaction()?;
        audit(&tx, report, progress)?;
        Ok(tx.commit()?)
    };
    found().map_err(|fault| fault.at(path, "read"))
}

/// Reads all, inside a transaction that somebody else begins and ends.
fn audit(
    tx: &Connection,
    report: &mut AuditReport,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Fault> {
    quick_check(tx, report)?;
    let tally = rows::read_all(tx, report, progress)?;
    cross::compare(tx, report, &tally)
}

/// SQLite's own look at its pages, and at indexes against tables.
fn quick_check(connection: &Connection, report: &mut AuditReport) -> Result<(), Fault> {
    let mut statement = connection.prepare("PRAGMA integrity_check(100)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line != "ok" {
            report.add("", "", format!("SQLite says: {line}"));
        }
    }
    Ok(())
}
