//! The open store: where commits are written, and when they reach the tables.
//!
//! A small commit is appended to the turn log and kept in memory. It is written into the tables with many others, in
//! one unflushed transaction: when enough are waiting, when a reader comes, or when the store is idle. A large commit
//! is written into the tables at once, after all waiting ones, and is flushed there.

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

/// Most changes of a commit in the turn log. A larger commit goes into the tables at once: there its rows cost more
/// than its transaction, and they would otherwise be written twice.
const SMALL_CHANGES_MAX: usize = 64;
/// Limits that decide when commits are written into the tables, and when the write-ahead log is checkpointed.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Pages in the write-ahead log from which it is checkpointed. Sooner costs writes; later makes the pause longer
    /// and recovery slower.
    pub log_pages: u64,
    /// Pages from which it is checkpointed while the store is idle.
    pub log_pages_idle: u64,
    /// Commits that may wait for the tables. The next one waits until they are written, so this must not be too
    /// large.
    pub waiting_commits: usize,
    /// Changes in commits that may wait for the tables.
    pub waiting_changes: usize,
}

impl Default for Limits {
    /// Returns 32 MiB, 1 MiB, 64 commits, 1,024 changes.
    fn default() -> Self {
        Self {
            log_pages: 16_384,
            log_pages_idle: 512,
            waiting_commits: 64,
            waiting_changes: 1_024,
        }
    }
}

/// Whether a transaction is flushed when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// It is flushed, with everything before it.
    Now,
    /// It is flushed later; the turn log has its commits.
    Later,
}

/// The open store: its writing connection, turn log and waiting commits.
pub(crate) struct Session {
    path: PathBuf,
    limits: Limits,
    connection: Connection,
    tables: Tables,
    /// Pages in the write-ahead log, as SQLite reported after the last commit.
    log_pages: Arc<AtomicU64>,
    /// Flush setting of the connection.
    flush: Flush,
    /// Whether the tables have changes that are not flushed there.
    is_unflushed: bool,
    /// The turn log; `None` if it could not be created, in which case every commit goes into the tables.
    turns: Option<TurnLog>,
    /// Commits in the turn log that the tables do not have yet.
    waiting: Vec<Arc<Commit>>,
    waiting_changes: usize,
    /// Reason why no further commit is accepted; `None` while the store works.
    failure: Option<String>,
    reserve: Arc<ReserveFile>,
}

impl Session {
    /// Connects to the database and recovers it.
    ///
    /// The write-ahead log, which [`wal::rewrite`] has put on disk, is first copied into the file and both are
    /// flushed: after a failed flush the system may show pages of the file that are not on disk. Then the commits
    /// that only the turn log has are written into the tables.
    ///
    /// # Errors
    /// If the write-ahead log cannot be copied, because another process reads for long, or after a failed write or
    /// flush.
    pub(crate) fn open(
        path: PathBuf,
        limits: Limits,
        mut connection: Connection,
        reserve: Arc<ReserveFile>,
        has_failed: bool,
    ) -> Result<Self, Fault> {
        // A session dropped after a failed flush must not copy pages that may not be on disk.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        if !checkpoint(&connection, "TRUNCATE")? {
            if has_failed {
                let reason = "a write has failed before, and another process (`ganger check`, `ganger backup`) \
                              reads it: wait until that has ended";
                return Err(Fault::Store(io(&path, "opened", reason)));
            }
            // Pages that are not in the file yet stay in the write-ahead log; the turn log is overwritten below.
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
            // The turn log is created again below: until then the header must not require it.
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
        // The file alone must say so too.
        checkpoint(&session.connection, "PASSIVE")?;
        Ok(session)
    }

    /// Writes the commits into the tables that only the turn log has.
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

    /// The header in the tables.
    pub(crate) fn header(&self) -> &Header {
        &self.tables.header
    }

    /// The connection that writes.
    #[cfg(test)]
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether commits are waiting for the tables.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sequence of the last commit, in the tables or in the turn log.
    fn sequence(&self) -> u64 {
        self.waiting
            .last()
            .map_or(self.tables.header.sequence, |commit| commit.sequence)
    }

    /// Makes a commit durable, if its sequence follows the last one and no other process has taken over the store.
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

    /// Appends a commit to the turn log; returns false if there is no turn log or it is full.
    fn append(&mut self, commit: &Commit) -> Result<bool, CommitError> {
        let Some(turns) = &mut self.turns else {
            return Ok(false);
        };
        turns.append(commit).map_err(|error| {
            let log = turns::path_of(&self.path);
            CommitError::Unknown(format!("{} cannot be written: {error}", log.display()))
        })
    }

    /// Opens the turn log once the tables have everything in it.
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

    /// Writes all waiting commits into the tables.
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
    /// SQLite does not flush at the end of a transaction that has changed nothing, whatever the setting.
    fn flush_tables(&mut self) -> Result<(), Fault> {
        if self.is_unflushed {
            wal::flush(&self.path).map_err(Fault::Store)?;
            self.is_unflushed = false;
            self.restart_turns();
        }
        Ok(())
    }

    /// Writes all waiting commits into the tables if the disk has space; if not, the turn log still has room.
    fn try_apply_waiting(&mut self) -> Result<(), Fault> {
        match self.apply_waiting(Flush::Later) {
            Err(fault) if fault.is_full() => Ok(()),
            other => other,
        }
    }

    /// Reads one state of the tables, with everything acknowledged, inside a transaction.
    ///
    /// On a full disk the waiting commits cannot be written. They are then applied in memory and rolled back after
    /// the read.
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
        // Both are needed even after an error: the connection continues to write.
        let rolled_back = self.roll_back();
        let spills = self.connection.pragma_update(None, "cache_spill", true);
        let found = found?;
        rolled_back?;
        spills?;
        Ok(found)
    }

    /// Begins a transaction and applies all waiting commits in it.
    fn apply_in_memory(&mut self) -> Result<(), Fault> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let commits = self.waiting.iter().map(AsRef::as_ref);
        self.tables.write_commits(&self.connection, commits)?;
        Ok(())
    }

    /// Writes all waiting commits and then `commit` in one transaction; on a full disk with space from the reserve.
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

    /// Sets whether SQLite flushes the end of a transaction.
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

    /// Restarts the turn log once the tables have everything, flushed. Its stamp reveals it if the tables ever lose
    /// that.
    fn restart_turns(&mut self) {
        let Some(turns) = &mut self.turns else {
            return;
        };
        if let Err(error) = turns.restart(self.tables.header.sequence) {
            // The tables have its content, so it is not needed.
            tracing::warn!(%error, "the turn log cannot be written: commits go into the tables at once");
            self.turns = None;
        }
    }

    /// Rolls a failed transaction back.
    pub(crate) fn roll_back(&mut self) -> Result<(), Fault> {
        self.tables.forget_queue_numbers();
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        Ok(())
    }

    /// Checkpoints the write-ahead log if it is long.
    pub(crate) fn checkpoint_if_long(&mut self) {
        if let Err(fault) = self.checkpoint_from(self.limits.log_pages) {
            self.record_failed_upkeep(&fault);
        }
    }

    /// Checkpoints the write-ahead log while the store is idle, if it is long enough to be worth it.
    pub(crate) fn checkpoint_if_worthwhile(&mut self) -> Result<(), Fault> {
        self.checkpoint_from(self.limits.log_pages_idle)
    }

    /// Checkpoints the write-ahead log if it has at least `pages` pages.
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
            // The next commit restarts the log. If readers prevented that, it is tried again.
            self.log_pages.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Records that upkeep failed. Acknowledged commits are safe in the logs. The store waits for a full disk to have
    /// room; after a failed flush it refuses the next commit until it has been opened again (`rel D6`).
    pub(crate) fn record_failed_upkeep(&mut self, fault: &Fault) {
        // The shard reports a full disk.
        if !fault.is_full() {
            tracing::error!(?fault, "the logs cannot be written into the file");
            self.failure = Some(format!("{fault:?}"));
        }
    }

    /// Writes everything into the tables, so that the turn log is not needed until the store is used again.
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

/// Whether a commit may be written to the turn log.
///
/// A commit that changes or removes finished jobs may not: their rows must be read first, and a damaged row refuses
/// the commit, which must be known before the commit is acknowledged.
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

/// Bytes of payloads, results and logs in a change.
fn payload_bytes(change: &Change) -> usize {
    match change {
        Change::PutPayload { payload, .. } => payload.len(),
        Change::FinishJob { result, .. } => result.as_ref().map_or(0, Bytes::len),
        Change::AppendLog { bytes, .. } => bytes.len(),
        _ => 0,
    }
}

/// Checkpoints the write-ahead log; returns whether all of it was copied.
fn checkpoint(connection: &Connection, mode: &str) -> Result<bool, Fault> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    let (log, done): (i64, i64) =
        connection.query_row(&sql, [], |row| Ok((row.get(1)?, row.get(2)?)))?;
    Ok(log == done)
}
