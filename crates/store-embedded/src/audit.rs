//! The audit of a store, at rest or in use: every row read, every count counted again (`rel A1`).

mod at_rest;
mod cross;
mod external;
mod in_use;
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

/// Maximum number of findings kept with their text; further ones are only counted.
const FINDINGS_MAX: usize = 1_000;

/// An inconsistency that the audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the table; empty if the finding concerns no single table.
    pub table: String,
    /// Key of the row in readable form; empty if the finding concerns no single row.
    pub row: String,
    /// Description of the inconsistency and of what it affects.
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

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Number of live jobs.
    pub live_jobs: u64,
    /// Number of finished jobs.
    pub finished_jobs: u64,
    /// Number of live leases.
    pub leases: u64,
    /// Number of rows of external systems.
    pub external_rows: u64,
    /// Number of rows read from all tables.
    pub rows: u64,
    /// Sequence of the last commit that the audit covers.
    pub sequence: u64,
    /// Number of later commits in the turn log. They are intact, but the server that uses the store did not write
    /// them into the tables in time.
    pub waiting: u64,
    /// Description of a commit at the end that cannot be judged: its write was cut short, so it was not acknowledged,
    /// or it is damaged. `None` if there is no such commit.
    pub doubt: Option<String>,
    /// Inconsistencies, at most 1,000; empty if the store is consistent.
    pub findings: Vec<Finding>,
    /// Number of findings beyond the first 1,000.
    pub findings_dropped: u64,
}

impl AuditReport {
    /// Whether the audit found no inconsistency.
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

/// Audits the store in the file `path` as of one commit, whether or not a server uses it, and writes nothing into it.
/// `progress` is called from time to time with the number of rows read so far. The write-ahead log of a store in use
/// grows until the audit ends.
///
/// # Errors
/// If the file cannot be read, is not a store, or has a newer format than this program. Damage is not an error; the
/// report lists it.
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

/// Whether the store has a write-ahead log or a turn log. Without them it was closed cleanly and no process uses it.
/// Its directory may be read-only.
fn has_logs(path: &Path) -> bool {
    beside(path, "-wal").exists() || turns::is_there(path)
}

/// Audits the tables without the turn log.
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

/// Reads all rows. The caller begins and ends the transaction.
fn audit(
    tx: &Connection,
    report: &mut AuditReport,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Fault> {
    quick_check(tx, report)?;
    let tally = rows::read_all(tx, report, progress)?;
    cross::compare(tx, report, &tally)
}

/// Runs SQLite's check of its pages and of indexes against tables.
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
