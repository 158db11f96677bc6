//! The audit of a store, at rest or in use: every row read, every count counted again (`rel A1`).

mod cross;
mod keys;
mod qless;
mod rows;
mod shards;

use std::fmt;
use std::path::Path;

use ganger_store::StoreError;
use rusqlite::Connection;

use crate::fault::Fault;
use crate::lock::Lock;
use crate::{connect, wal};

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
pub struct Report {
    /// Live jobs.
    pub live_jobs: u64,
    /// Finished jobs.
    pub finished_jobs: u64,
    /// Leases.
    pub leases: u64,
    /// Rows of qless.
    pub qless_rows: u64,
    /// Rows read, of all tables.
    pub rows: u64,
    /// Sequence of the last commit.
    pub sequence: u64,
    /// What is wrong; empty is good. At most 1,000 of them.
    pub findings: Vec<Finding>,
    /// How many more there were.
    pub findings_dropped: u64,
}

impl Report {
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
            Fault::Damaged(what) | Fault::Senseless(what) => self.add("", "", what),
            Fault::Sql(error) => self.add("", "", error),
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
pub fn check(path: impl AsRef<Path>, mut progress: impl FnMut(u64)) -> Result<Report, StoreError> {
    let path = path.as_ref();
    let mut report = Report::default();
    connect::inspect(path)?;
    inspect_log(path, &mut report)?;
    let connection = connect::reader(path)?;
    let audit = audit(&connection, &mut report, &mut progress);
    if let Err(fault) = audit {
        match fault.at(path, "read") {
            StoreError::Damaged { what, .. } => report.add("", "", what),
            error => return Err(error),
        }
    }
    Ok(report)
}

/// The log of a store in use changes under our eyes; its writer has looked at it when it began.
fn inspect_log(path: &Path, report: &mut Report) -> Result<(), StoreError> {
    if !crate::create::beside(path, "-wal").exists() {
        return Ok(());
    }
    let _lock = match Lock::take(path) {
        Ok(lock) => lock,
        Err(StoreError::InUse { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    match wal::inspect(path) {
        Err(StoreError::Damaged { what, .. }) => {
            report.add("", "", what);
            Ok(())
        }
        other => other,
    }
}

fn audit(
    connection: &Connection,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Fault> {
    let tx = connection.unchecked_transaction()?;
    quick_check(&tx, report)?;
    let tally = rows::read_all(&tx, report, progress)?;
    cross::compare(&tx, report, &tally)?;
    tx.commit()?;
    Ok(())
}

/// SQLite's own look at its pages, and at indexes against tables.
fn quick_check(connection: &Connection, report: &mut Report) -> Result<(), Fault> {
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
