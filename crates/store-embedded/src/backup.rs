//! A consistent copy of a store while it is used.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use ganger_store::StoreError;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::audit::{self, AuditReport};
use crate::connect;
use crate::create::{self, beside};
use crate::fault::{Fault, io};
use crate::meta::Header;
use crate::tables::Tables;
use crate::turns::{LogSize, TurnLogContent};

/// Number of pages copied per step: 4 MiB.
const STEP_PAGES: i32 = 1_024;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Copies the store `from` into the new file `to` and audits the copy. The copy has the state of one commit made
/// before or during the start of this call. The writer continues meanwhile; its write-ahead log grows until the copy
/// ends. `to` appears only when it is complete, flushed and checked.
///
/// # Errors
/// If `to` exists, either cannot be read or written, or the copy turns out to be damaged.
pub fn backup(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<AuditReport, StoreError> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if to.exists() {
        return Err(io(to, "written", "the file exists already: name a new one"));
    }
    connect::inspect(from)?;
    // Every acknowledged commit is in the turn log or in the tables, if they are read in this order.
    let turns = read_turns(from)?;
    create::make_parent(to)?;
    let new = beside(to, ".new");
    if new.exists() {
        let reason =
            "another backup writes it, or one that was stopped has left it: then remove it";
        return Err(io(&new, "created", reason));
    }
    create::create_exclusively(&new)?;
    let copied = copy_and_check(from, &turns, &new).and_then(|report| {
        let renamed = renameat_with(CWD, &new, CWD, to, RenameFlags::NOREPLACE);
        renamed.map_err(|error| io(to, "created", error))?;
        create::sync_parent(to)?;
        Ok(report)
    });
    if copied.is_err() {
        create::remove_with_logs(&new)?;
    }
    copied
}

fn read_turns(from: &Path) -> Result<TurnLogContent, StoreError> {
    let connection = connect::reader(from)?;
    let header = Header::read_from(&connection).map_err(|fault| fault.at(from, "read"))?;
    TurnLogContent::read(from, &header)
}

fn copy_and_check(
    from: &Path,
    turns: &TurnLogContent,
    new: &Path,
) -> Result<AuditReport, StoreError> {
    copy(from, new)?;
    add(turns, new).map_err(|fault| fault.at(new, "written"))?;
    let flush = || File::open(new).and_then(|file| file.sync_all());
    flush().map_err(|error| io(new, "flushed", error))?;
    let report = audit::check(new, |_| {})?;
    if let Some(finding) = report.findings.first() {
        return Err(StoreError::Damaged {
            path: from.display().to_string(),
            what: format!("its copy does not pass the audit: {finding}"),
        });
    }
    create::remove_logs(new)?;
    Ok(report)
}

/// Writes the commits that only the turn log had into the copy.
///
/// The writer may have appended commits while the log was read, so later ones may be missing. All commits that
/// existed before follow the tables' state without a gap.
fn add(turns: &TurnLogContent, new: &Path) -> Result<(), Fault> {
    let mut target = Connection::open(new)?;
    let mut tables = Tables::read_from(&target)?;
    let commits = turns.consecutive_commits_after(tables.header.sequence)?;
    let tx = target.transaction()?;
    let after = tables.write_commits(&tx, commits.iter())?;
    tables.committed(after);
    tables.change_header(&tx, |header| header.log = LogSize::default())?;
    tx.commit()?;
    target.close().map_err(|(_, error)| Fault::Sql(error))
}

fn copy(from: &Path, new: &Path) -> Result<(), StoreError> {
    let source = connect::reader(from)?;
    let pin = || -> Result<(), Fault> {
        // The transaction stays open until the end: without it the copy would restart with every commit.
        source.execute_batch("BEGIN")?;
        source.query_row("SELECT count(*) FROM meta", [], |_| Ok(()))?;
        Ok(())
    };
    pin().map_err(|fault| fault.at(from, "read"))?;
    let write = || -> Result<(), Fault> {
        let mut target = Connection::open(new)?;
        let backup = Backup::new(&source, &mut target)?;
        loop {
            match backup.step(STEP_PAGES)? {
                StepResult::Done => break,
                StepResult::More => {}
                _ => std::thread::sleep(BUSY_PAUSE),
            }
        }
        drop(backup);
        target.close().map_err(|(_, error)| Fault::Sql(error))
    };
    write().map_err(|fault| fault.at(new, "written"))
}
