//! The store while it is open: where commits go, and when they come into the tables.
//!
//! A small commit goes into the turn log and is kept in memory. It comes into the tables with many others, in one
//! transaction that is not flushed: when they have become enough, when somebody wants to read, or when nothing else is
//! to be done. A large commit goes into the tables at once, with all that wait before it, and is flushed there.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ganger_store::CommitError;
use ganger_types::{Bytes, Change, Commit};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::fault::{Fault, io};
use crate::meta::Header;
use crate::reserve::ReserveFile;
use crate::tables::Tables;
use crate::turns::{self, TurnLog, TurnLogContent};
use crate::wal;

/// A commit with more changes goes into the tables at once: there its rows cost more than its transaction, and would
/// be written twice otherwise.
const SMALL_CHANGES_MAX: usize = 64;
/// When commits come into the tables, and when the log of these is copied into the file.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The log of the tables is copied when it has so many pages. Sooner costs writes, later makes the pause longer and
    /// recovery slower.
    pub log_pages: u64,
    /// While nothing waits, it is copied from so many pages on.
    pub log_pages_idle: u64,
    /// So many commits may wait for the tables. The one that comes next waits for them to be written, so they must
    /// not be too many.
    pub waiting_commits: usize,
    /// Or commits with so many changes.
    pub waiting_changes: usize,
}

impl Default for Limits {
    /// 32 MiB, 1 MiB, 64 commits, 1,024 changes.
    fn default() -> Self {
        Self {
            log_pages: 16_384,
            log_pages_idle: 512,
            waiting_commits: 64,
            waiting_changes: 1_024,
        }
    }
}

/// Whether a transaction is on disk when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Yes, and with it all before it.
    Now,
    /// Not yet: the turn log has it.
    Later,
}

/// What is known while the store is open.
pub(crate) struct Session {
    path: PathBuf,
    limits: Limits,
    connection: Connection,
    tables: Tables,
    /// Pages in the log of the tables, told by SQLite after each commit.
    log_pages: Arc<AtomicU64>,
    /// What SQLite was told last.
    flush: Flush,
    /// Whether the tables have something that is not flushed there.
    is_unflushed: bool,
    /// `None` if it could not be made: then every commit goes into the tables.
    turns: Option<TurnLog>,
    /// Commits in the turn log that the tables do not have, and how many changes these are.
    waiting: Vec<Arc<Commit>>,
    waiting_changes: usize,
    /// Why nothing may be committed any more.
    failure: Option<String>,
    reserve: Arc<ReserveFile>,
}

impl Session {
    /// Connects and takes the store over.
    ///
    /// The log of the tables, which [`wal::rewrite`] has put on disk, is copied into the file and both are flushed first:
    /// after a failed flush the system may show pages of the file that are not on disk. Then the tables get what the turn
    /// log has and they have not.
    ///
    /// # Errors
    /// If the log cannot be copied, because another process reads for long, after a failed write or flush.
    pub(crate) fn open(
        path: PathBuf,
        limits: Limits,
        mut connection: Connection,
        reserve: Arc<ReserveFile>,
        has_failed: bool,
    ) -> Result<Self, Fault> {
        // A session that is dropped after a failed flush must not copy what may not be on disk.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        if !checkpoint(&connection, "TRUNCATE")? {
            if has_failed {
                let reason = "a write has failed before, and another process (`ganger check`, `ganger backup`) \
                              reads it: wait until that has ended";
                return Err(Fault::Store(io(&path, "opened", reason)));
            }
            // What is not in the file yet stays in the log, and the turn log is written over below.
            wal::flush(&path).map_err(Fault::Store)?;
        }
        let log_pages = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&log_pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            told.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        let tables = Tables::read_from(&connection)?;
        let turns = TurnLogContent::read(&path, &tables.header.identity).map_err(Fault::Store)?;
        let mut session = Self {
            path,
            limits,
            connection,
            tables,
            log_pages,
            flush: Flush::Now,
            is_unflushed: false,
            turns: None,
            waiting: Vec::new(),
            waiting_changes: 0,
            failure: None,
            reserve,
        };
        session.catch_up(&turns)?;
        if session.header().has_turns && !turns.is_whole() {
            // It is made once more below: until that is done, a short one is right.
            let none = |header: &mut Header| header.has_turns = false;
            session.tables.change_header(&session.connection, none)?;
        }
        session.open_turns();
        let has_turns = session.turns.is_some();
        session
            .tables
            .change_header(&session.connection, |header| {
                header.epoch.0 += 1;
                header.has_turns = has_turns;
            })?;
        // The file alone is to say so too.
        checkpoint(&session.connection, "PASSIVE")?;
        Ok(session)
    }

    /// Writes what the turn log has and the tables have not.
    fn catch_up(&mut self, turns: &TurnLogContent) -> Result<(), Fault> {
        self.waiting = turns
            .commits_after(self.tables.header.sequence)?
            .into_iter()
            .map(Arc::new)
            .collect();
        if self.waiting.is_empty() {
            return Ok(());
        }
        tracing::info!(
            commits = self.waiting.len(),
            "the turn log is written into the tables"
        );
        self.write(None, Flush::Now)
    }

    /// Where the store stands, in the tables.
    pub(crate) fn header(&self) -> &Header {
        &self.tables.header
    }

    /// The connection that writes.
    #[cfg(test)]
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether commits wait for the tables.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sequence of the last commit, wherever it is.
    fn sequence(&self) -> u64 {
        self.waiting
            .last()
            .map_or(self.tables.header.sequence, |commit| commit.sequence)
    }

    /// Makes a commit durable, if that is its place in the order and the store is still ours.
    pub(crate) fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        if let Some(reason) = &self.failure {
            return Err(CommitError::Unknown(reason.clone()));
        }
        self.judge(commit)?;
        if self.waiting.len() >= self.limits.waiting_commits
            || self.waiting_changes >= self.limits.waiting_changes
        {
            self.try_apply_waiting().map_err(Fault::into_commit_error)?;
        }
        if is_for_turns(commit) && self.append(commit)? {
            self.waiting_changes += commit.changes.len();
            self.waiting.push(Arc::clone(commit));
            return Ok(());
        }
        self.write(Some(commit), Flush::Now)
            .map_err(Fault::into_commit_error)
    }

    fn judge(&self, commit: &Commit) -> Result<(), CommitError> {
        if commit.epoch != self.tables.header.epoch {
            return Err(CommitError::Fenced {
                ours: commit.epoch,
                theirs: self.tables.header.epoch,
            });
        }
        let last = self.sequence();
        if commit.sequence != last + 1 {
            let ours = commit.sequence;
            let reason = format!("commit {ours} does not follow {last}, the last one");
            return Err(CommitError::NotApplied {
                reason,
                is_full: false,
            });
        }
        Ok(())
    }

    /// Appends a commit to the turn log; false if there is none, or it has no room.
    fn append(&mut self, commit: &Commit) -> Result<bool, CommitError> {
        let Some(turns) = &mut self.turns else {
            return Ok(false);
        };
        turns.append(commit).map_err(|error| {
            let log = turns::path_of(&self.path);
            CommitError::Unknown(format!("{} cannot be written: {error}", log.display()))
        })
    }

    /// Opens the turn log of tables that have all that is in it.
    fn open_turns(&mut self) {
        let identity = self.tables.header.identity;
        let opened = self
            .reserve
            .with_room(|| TurnLog::open(&self.path, identity));
        match opened {
            Ok(turns) => {
                self.turns = Some(turns);
                self.restart_turns();
            }
            Err(error) => {
                tracing::warn!(%error, "without a turn log every commit is written into the tables at once");
            }
        }
    }

    /// Writes all that waits for the tables.
    pub(crate) fn apply_waiting(&mut self, flush: Flush) -> Result<(), Fault> {
        if self.waiting.is_empty() {
            return match flush {
                Flush::Now => self.flush_tables(),
                Flush::Later => Ok(()),
            };
        }
        let written = self.write(None, flush);
        if written.is_err() {
            self.roll_back()?;
        }
        written
    }

    /// Flushes what was written with [`Flush::Later`].
    ///
    /// SQLite does not do that at the end of a transaction that has changed nothing, whatever it was asked for.
    fn flush_tables(&mut self) -> Result<(), Fault> {
        if self.is_unflushed {
            wal::flush(&self.path).map_err(Fault::Store)?;
            self.is_unflushed = false;
            self.restart_turns();
        }
        Ok(())
    }

    /// Writes all that waits for the tables, if the disk has space for it; without, the turn log has still room.
    fn try_apply_waiting(&mut self) -> Result<(), Fault> {
        match self.apply_waiting(Flush::Later) {
            Err(fault) if fault.is_full() => Ok(()),
            other => other,
        }
    }

    /// Reads one state of the tables, with all that was acknowledged, inside a transaction.
    ///
    /// On a full disk what waits for the tables cannot be written. Then it is written in memory, and taken back.
    pub(crate) fn read<T>(
        &mut self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        match self.apply_waiting(Flush::Later) {
            Err(fault) if fault.is_full() => self.read_in_memory(read),
            settled => {
                settled?;
                let tx = self.connection.unchecked_transaction()?;
                let found = read(&tx)?;
                tx.commit()?;
                Ok(found)
            }
        }
    }

    fn read_in_memory<T>(
        &mut self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.connection.pragma_update(None, "cache_spill", false)?;
        let write_commits = self.apply_in_memory();
        let found = write_commits.and_then(|()| read(&self.connection));
        // Both are needed after an error too: the connection goes on writing.
        let rolled_back = self.roll_back();
        let spills = self.connection.pragma_update(None, "cache_spill", true);
        let found = found?;
        rolled_back?;
        spills?;
        Ok(found)
    }

    /// Begins a transaction with all that waits for the tables in it.
    fn apply_in_memory(&mut self) -> Result<(), Fault> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let commits = self.waiting.iter().map(AsRef::as_ref);
        self.tables.write_commits(&self.connection, commits)?;
        Ok(())
    }

    /// Writes all that waits for the tables, and a commit behind it, in one transaction; on a full disk from the reserve.
    fn write(&mut self, commit: Option<&Commit>, flush: Flush) -> Result<(), Fault> {
        loop {
            match self.try_write(commit, flush) {
                Err(fault) if self.reserve.release_for(&fault) => self.roll_back()?,
                done => return done,
            }
        }
    }

    fn try_write(&mut self, commit: Option<&Commit>, flush: Flush) -> Result<(), Fault> {
        self.set_flush(flush)?;
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        let commits = self.waiting.iter().map(AsRef::as_ref).chain(commit);
        let after = self.tables.write_commits(&self.connection, commits)?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        self.tables.committed(after);
        self.waiting.clear();
        self.waiting_changes = 0;
        self.is_unflushed = flush == Flush::Later;
        if flush == Flush::Now {
            self.restart_turns();
        }
        Ok(())
    }

    /// Tells SQLite whether the end of a transaction is to be flushed.
    fn set_flush(&mut self, flush: Flush) -> Result<(), Fault> {
        if self.flush != flush {
            let mode = match flush {
                Flush::Now => "FULL",
                Flush::Later => "NORMAL",
            };
            self.connection.pragma_update(None, "synchronous", mode)?;
            self.flush = flush;
        }
        Ok(())
    }

    /// The tables have all, flushed: the turn log begins again, and says so. By that it is noticed if they ever lose it.
    fn restart_turns(&mut self) {
        let Some(turns) = &mut self.turns else {
            return;
        };
        if let Err(error) = turns.restart(self.tables.header.sequence) {
            // What it has is in the tables, so it can be done without.
            tracing::warn!(%error, "the turn log cannot be written: commits go into the tables at once");
            self.turns = None;
        }
    }

    /// Takes a failed transaction back.
    pub(crate) fn roll_back(&mut self) -> Result<(), Fault> {
        self.tables.forget_queue_numbers();
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        Ok(())
    }

    /// Copies the log of the tables into the file if it is long.
    pub(crate) fn checkpoint_if_long(&mut self) {
        if let Err(fault) = self.checkpoint_from(self.limits.log_pages) {
            self.record_failed_upkeep(&fault);
        }
    }

    /// Copies the log of the tables into the file if it is worth it while nothing waits.
    pub(crate) fn checkpoint_if_worthwhile(&mut self) -> Result<(), Fault> {
        self.checkpoint_from(self.limits.log_pages_idle)
    }

    /// Copies the log of the tables into the file if it has at least `pages`.
    fn checkpoint_from(&mut self, pages: u64) -> Result<(), Fault> {
        if self.log_pages.load(Ordering::Relaxed) < pages {
            return Ok(());
        }
        let is_copied = loop {
            match checkpoint(&self.connection, "PASSIVE") {
                Err(fault) if self.reserve.release_for(&fault) => {}
                done => break done?,
            }
        };
        if is_copied {
            // The next commit starts the log again. If readers held it back it is tried again.
            self.log_pages.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What was acknowledged is safe in the logs. A full disk is waited out; a failed flush is not ignored:
    /// the next commit is refused until the store has been opened again (`rel D6`).
    pub(crate) fn record_failed_upkeep(&mut self, fault: &Fault) {
        // The shard reports a full disk.
        if !fault.is_full() {
            tracing::error!(?fault, "the logs cannot be written into the file");
            self.failure = Some(format!("{fault:?}"));
        }
    }

    /// Brings everything into the tables, so that the turn log is not needed until the store is used again.
    pub(crate) fn close(mut self) {
        if self.failure.is_some() {
            return;
        }
        if let Err(fault) = self.give_up_turns() {
            tracing::warn!(
                ?fault,
                "the turn log stays beside the store, and is read when that is opened"
            );
        }
    }

    fn give_up_turns(&mut self) -> Result<(), Fault> {
        self.apply_waiting(Flush::Now)?;
        self.set_flush(Flush::Now)?;
        self.tables
            .change_header(&self.connection, |header| header.has_turns = false)?;
        turns::remove(&self.path)?;
        // SQLite copies its log into the file and removes it when the connection closes.
        self.connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        Ok(())
    }
}

/// Whether a commit may wait in the turn log.
///
/// What has ended and is changed or removed has to be read first, and if it is damaged, the commit is refused: that
/// must be known before it is acknowledged.
fn is_for_turns(commit: &Commit) -> bool {
    let may_wait = |change: &Change| {
        !matches!(
            change,
            Change::PutFinished(_) | Change::RetryJob(_) | Change::RemoveJob(_)
        )
    };
    let bytes: usize = commit.changes.iter().map(payload_bytes).sum();
    commit.changes.len() <= SMALL_CHANGES_MAX
        && bytes <= turns::RECORD_BYTES_MAX
        && commit.changes.iter().all(may_wait)
}

/// Bytes of what may be large in a change.
fn payload_bytes(change: &Change) -> usize {
    match change {
        Change::PutPayload { payload, .. } => payload.len(),
        Change::FinishJob { result, .. } => result.as_ref().map_or(0, Bytes::len),
        Change::AppendLog { bytes, .. } => bytes.len(),
        _ => 0,
    }
}

/// Copies the log of the tables into the file; whether all of it was.
fn checkpoint(connection: &Connection, mode: &str) -> Result<bool, Fault> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    let (log, done): (i64, i64) =
        connection.query_row(&sql, [], |row| Ok((row.get(1)?, row.get(2)?)))?;
    Ok(log == done)
}
