//! Audits a store that no process uses, in the state that the next opening would restore.

use std::path::Path;

use ganger_store::StoreError;
use ganger_types::Commit;
use rusqlite::config::DbConfig;

use super::{AuditReport, tables_only};
use crate::fault::Fault;
use crate::tables::Tables;
use crate::{connect, recover};

/// Audits the tables after applying the commits that only the turn log has, inside a transaction that is rolled back.
pub(super) fn audit(
    path: &Path,
    report: &mut AuditReport,
    progress: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    let rest = recover::inspect(path).and_then(|_| recover::rest(path));
    match rest {
        Ok(rest) => {
            match rest.doubt {
                Some(what) if rest.is_damage => report.add("", "", what),
                doubt => report.doubt = doubt,
            }
            if rest.commits.is_empty() {
                return tables_only(path, report, progress);
            }
            with(path, &rest.commits, report, progress).map_err(|fault| fault.at(path, "read"))
        }
        Err(StoreError::Damaged { what, .. }) => {
            report.add("", "", what);
            tables_only(path, report, progress)
        }
        Err(error) => Err(error),
    }
}

/// Runs `read` on the tables with these commits applied, then rolls back. The write-ahead log stays as it was.
fn with(
    path: &Path,
    commits: &[Commit],
    report: &mut AuditReport,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Fault> {
    let mut connection = connect::writer(path).map_err(Fault::Store)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let tx = connection.transaction()?;
    Tables::read_from(&tx)?.write_commits(&tx, commits.iter())?;
    super::audit(&tx, report, progress)?;
    tx.rollback()?;
    Ok(())
}
