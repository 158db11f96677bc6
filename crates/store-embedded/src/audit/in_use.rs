//! Audits a store that a server uses. Only the server may write the commits of the turn log into the tables, so the
//! audit waits until the server has done so.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ganger_store::StoreError;
use rusqlite::Connection;

use super::{AuditReport, tables_only};
use crate::connect;
use crate::fault::Fault;
use crate::meta::Header;
use crate::turns::TurnLogContent;

/// Time to wait for the server, which normally writes its turn log into the tables within two seconds.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(20);

/// Audits the tables once they have what the turn log has now, or after [`CATCH_UP_TIMEOUT`] as they are.
pub(super) fn audit(
    path: &Path,
    report: &mut AuditReport,
    progress: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    let connection = connect::reader(path)?;
    let last = wait(path, &connection)?;
    drop(connection);
    tables_only(path, report, progress)?;
    report.waiting = last.saturating_sub(report.sequence);
    Ok(())
}

/// Waits for the tables; returns the sequence of the last commit in the turn log.
fn wait(path: &Path, connection: &Connection) -> Result<u64, StoreError> {
    // A header that cannot be read is found by the audit.
    let Ok(header) = Header::read_from(connection) else {
        return Ok(0);
    };
    let turns = TurnLogContent::read(path, &header)?;
    let commits = turns.consecutive_commits_after(header.sequence);
    let commits = commits.map_err(|fault: Fault| fault.at(path, "read"))?;
    let Some(last) = commits.last().map(|commit| commit.sequence) else {
        return Ok(0);
    };
    let begun = Instant::now();
    while begun.elapsed() < CATCH_UP_TIMEOUT {
        let stands_at = Header::read_from(connection).map_or(last, |header| header.sequence);
        if stands_at >= last {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(last)
}
