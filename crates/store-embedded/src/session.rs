//! The open store: commits go into the turn log one by one, and into the tables later, many together.
//!
//! Two locks keep the two apart: a commit takes `commits` and never waits for the tables unless too much is waiting for
//! them; a thread that writes or reads the tables takes `rows`. A thread that needs both takes `commits` first.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ganger_store::waiting::{CommitQueue, RowWork};
use ganger_store::{CommitError, StoreError};
use ganger_types::{Commit, Epoch};
use rusqlite::Connection;

use crate::fault::{Fault, io};
use crate::flushes::{self, Flushes};
use crate::limits::Limits;
use crate::meta::Header;
use crate::reserve::ReserveFile;
use crate::rows::{Flush, Rows};
use crate::turns::{self, Appended, LogSize, TurnLog, TurnLogContent};

/// Number of commits of the turn log that recovery writes in one transaction.
const RECOVERED_AT_ONCE: usize = 4_096;

/// A store that is open for writing: its tables, turn log and lock.
pub(crate) struct Session {
    limits: Limits,
    queue: Arc<CommitQueue>,
    flushes: Flushes,
    commits: Mutex<Commits>,
    rows: Mutex<Rows>,
    /// Sequence up to which the tables have everything, flushed.
    in_tables: AtomicU64,
    /// Reason why no further commit is accepted; `None` while the store works.
    failure: Mutex<Option<String>>,
}

/// The end of the store, to which commits are added.
struct Commits {
    epoch: Epoch,
    /// Sequence of the last commit.
    last: u64,
    /// The turn log; `None` if it could not be created, in which case every commit goes into the tables.
    log: Option<TurnLog>,
}

impl Session {
    /// Recovers the store: writes the commits into the tables that only the turn log has, and raises the epoch.
    ///
    /// # Errors
    /// If the tables cannot be read or written, or another process that reads them prevents it.
    pub(crate) fn open(
        path: PathBuf,
        limits: Limits,
        connection: Connection,
        reserve: &Arc<ReserveFile>,
        queue: Arc<CommitQueue>,
        flushes: Flushes,
        has_failed: bool,
    ) -> Result<Self, Fault> {
        queue.clear();
        let reserve_of_rows = Arc::clone(reserve);
        let mut rows = Rows::open(
            path,
            connection,
            reserve_of_rows,
            flushes.clone(),
            has_failed,
        )?;
        let content = TurnLogContent::read(rows.path(), rows.header()).map_err(Fault::Store)?;
        catch_up(&mut rows, &content)?;
        let size = LogSize {
            segments: 1,
            segment_bytes: limits.segment_bytes,
        };
        if rows.header().log != size || !content.is_whole() {
            // The turn log is made again below: until then the header must not require it.
            rows.set_log_size(LogSize::default())?;
        }
        let log = if limits.segment_bytes == 0 {
            None
        } else {
            open_log(&rows, &limits, reserve)
        };
        rows.change_header(|header| {
            header.epoch.0 += 1;
            header.log = log.as_ref().map(TurnLog::size).unwrap_or_default();
        })?;
        // The file alone must say so too.
        rows.checkpoint()?;
        if let Err(error) = turns::remove_from(rows.path(), 2) {
            // Nothing reads it, since the header does not count it.
            tracing::warn!(%error, "a segment of the turn log that is not needed stays beside the store");
        }
        let commits = Commits {
            epoch: rows.header().epoch,
            last: rows.header().sequence,
            log,
        };
        Ok(Self {
            limits,
            queue,
            flushes,
            in_tables: AtomicU64::new(commits.last),
            commits: Mutex::new(commits),
            rows: Mutex::new(rows),
            failure: Mutex::new(None),
        })
    }

    fn commits(&self) -> MutexGuard<'_, Commits> {
        let commits = self.commits.lock();
        commits.expect("a store that broke is not used again")
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        let rows = self.rows.lock();
        rows.expect("a store that broke is not used again")
    }

    fn failure(&self) -> MutexGuard<'_, Option<String>> {
        let failure = self.failure.lock();
        failure.expect("no thread panics while it holds this lock")
    }

    /// The header in the tables.
    pub(crate) fn header(&self) -> Header {
        self.rows().header().clone()
    }

    #[cfg(test)]
    pub(crate) fn on_connection<T>(&self, run: impl FnOnce(&Connection) -> T) -> T {
        run(self.rows().connection())
    }

    /// Makes a commit durable, if its sequence follows the last one and no other process has taken over the store.
    pub(crate) fn commit(&self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        self.check_failure()?;
        let mut commits = self.commits();
        commits.check(commit)?;
        if self.queue.is_over(&self.limits.of_backlog().queue()) {
            self.make_room(Flush::Later)?;
        }
        if !self.append(&mut commits, commit)? {
            self.write_at_once(commit)?;
        }
        commits.last = commit.sequence;
        Ok(())
    }

    fn check_failure(&self) -> Result<(), CommitError> {
        match &*self.failure() {
            Some(reason) => Err(CommitError::Unknown(reason.clone())),
            None => Ok(()),
        }
    }

    /// Appends a commit to the turn log; returns false if it must go into the tables at once.
    fn append(&self, commits: &mut Commits, commit: &Arc<Commit>) -> Result<bool, CommitError> {
        // With the second attempt there is another segment; with the third all commits are in the tables.
        for attempt in 0..3 {
            let Some(log) = &mut commits.log else {
                return Ok(false);
            };
            let in_tables = self.in_tables.load(Ordering::Acquire);
            let appended = log.append(commit, in_tables);
            match appended.map_err(|error| CommitError::Unknown(error.to_string()))? {
                Appended::Flushed(bytes) => {
                    self.flushes.add(flushes::ONE);
                    self.queue.push(commit, bytes, &self.limits.queue());
                    if log.will_need_segment(in_tables) {
                        self.queue.ask(RowWork::Write);
                    }
                    return Ok(true);
                }
                Appended::TooLarge => return Ok(false),
                // A thread that writes the tables makes segments ahead of their use.
                Appended::NoRoom if attempt == 0 && !self.limits.has_row_thread => {
                    self.add_segment(log)?;
                }
                Appended::NoRoom => self.make_room(Flush::Now)?,
            }
        }
        // The disk is full: the tables could not be written.
        Ok(false)
    }

    /// Writes a commit into the tables, flushed, after all waiting ones.
    fn write_at_once(&self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        let mut rows = self.rows();
        let applied = self.apply_in(&mut rows, Flush::Later);
        applied.map_err(|fault| self.failed_apply(fault))?;
        let written = rows.write(std::slice::from_ref(commit), Flush::Now);
        written.map_err(Fault::into_commit_error)?;
        self.in_tables.store(commit.sequence, Ordering::Release);
        if let Err(fault) = rows.checkpoint_from(self.limits.log_pages) {
            self.record_failed_upkeep(&fault);
        }
        Ok(())
    }

    /// Writes the waiting commits into the tables if the disk has space; if not, the turn log may still have room.
    fn make_room(&self, flush: Flush) -> Result<(), CommitError> {
        match self.apply_waiting(flush) {
            Err(fault) if fault.is_full() => Ok(()),
            Err(fault) => Err(self.failed_apply(fault)),
            Ok(()) => {
                self.checkpoint_if_long();
                Ok(())
            }
        }
    }

    /// Commits that were acknowledged cannot be written into the tables. Unless the disk is full, the store has to be
    /// opened again, which tells more.
    fn failed_apply(&self, fault: Fault) -> CommitError {
        self.record_failed_upkeep(&fault);
        match fault.into_commit_error() {
            CommitError::NotApplied {
                reason,
                is_full: false,
            } => CommitError::Unknown(reason),
            other => other,
        }
    }

    /// Adds a segment to the turn log, if it may have another one and there is space.
    fn add_segment(&self, log: &mut TurnLog) -> Result<(), CommitError> {
        let Some(planned) = log.plan_segment(self.limits.segments_max) else {
            return Ok(());
        };
        match planned.make() {
            Ok(made) => {
                self.flushes.add(flushes::NEW_FILE);
                let known = self.rows().set_log_size(made.size());
                known.map_err(|fault| self.failed_apply(fault))?;
                log.add(made);
            }
            Err(error) => tracing::debug!(%error, "the turn log stays as it is"),
        }
        Ok(())
    }

    /// Makes a segment ahead of its use, if the next one could not be written over. Only the thread that writes the
    /// tables calls this.
    pub(crate) fn prepare_segment(&self) {
        let in_tables = self.in_tables.load(Ordering::Acquire);
        let planned = match &self.commits().log {
            Some(log) if log.will_need_segment(in_tables) => {
                log.plan_segment(self.limits.segments_max)
            }
            _ => None,
        };
        let Some(made) = planned.and_then(|planned| planned.make().ok()) else {
            return;
        };
        self.flushes.add(flushes::NEW_FILE);
        let mut commits = self.commits();
        if let Some(log) = &mut commits.log {
            match self.rows().set_log_size(made.size()) {
                Ok(()) => log.add(made),
                Err(fault) => self.record_failed_upkeep(&fault),
            }
        }
    }

    /// Writes all waiting commits into the tables.
    pub(crate) fn apply_waiting(&self, flush: Flush) -> Result<(), Fault> {
        self.apply_in(&mut self.rows(), flush)
    }

    fn apply_in(&self, rows: &mut Rows, flush: Flush) -> Result<(), Fault> {
        if let Some(reason) = &*self.failure() {
            // After a failed flush another one may succeed although nothing reached the disk.
            return Err(Fault::Store(io(rows.path(), "written", reason)));
        }
        let waiting = self.queue.take_for_writing();
        if !waiting.is_empty() {
            rows.write(&waiting, flush)?;
            self.queue.remove_written();
        } else if flush == Flush::Now {
            rows.flush()?;
        }
        if flush == Flush::Now {
            let sequence = rows.header().sequence;
            self.in_tables.store(sequence, Ordering::Release);
        }
        Ok(())
    }

    /// Reads one state of the tables, with everything acknowledged, inside a transaction.
    ///
    /// On a full disk the waiting commits cannot be written. They are then applied in memory and rolled back after
    /// the read.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut rows = self.rows();
        match self.apply_in(&mut rows, Flush::Later) {
            Err(fault) if fault.is_full() => {
                rows.read_in_memory(&self.queue.take_for_writing(), read)
            }
            applied => {
                applied?;
                rows.read(read)
            }
        }
    }

    /// Writes the waiting commits into the tables, flushed, and does what upkeep is due.
    pub(crate) fn tend(&self, work: RowWork) -> Result<(), Fault> {
        let pages = match work {
            RowWork::Write => self.limits.log_pages,
            RowWork::WriteIdle => self.limits.log_pages_idle,
        };
        let tended = self.apply_waiting(Flush::Now);
        let tended = tended.and_then(|()| self.rows().checkpoint_from(pages));
        if let Err(fault) = &tended {
            self.record_failed_upkeep(fault);
        } else if self.limits.has_row_thread {
            self.prepare_segment();
        }
        tended
    }

    /// Checkpoints the write-ahead log if it is long.
    fn checkpoint_if_long(&self) {
        if let Err(fault) = self.rows().checkpoint_from(self.limits.log_pages) {
            self.record_failed_upkeep(&fault);
        }
    }

    /// Checkpoints the write-ahead log while the store is idle, if it is long enough to be worth it.
    pub(crate) fn checkpoint_if_worthwhile(&self) -> Result<(), Fault> {
        self.rows().checkpoint_from(self.limits.log_pages_idle)
    }

    /// Records that upkeep failed. Acknowledged commits are safe in the logs. The store waits for a full disk to have
    /// room; after a failed flush it refuses the next commit until it has been opened again (`rel D6`).
    pub(crate) fn record_failed_upkeep(&self, fault: &Fault) {
        // The shard reports a full disk.
        if fault.is_full() {
            return;
        }
        let mut failure = self.failure();
        if failure.is_none() {
            tracing::error!(
                ?fault,
                "the commits of the turn log cannot be written into the tables"
            );
            *failure = Some(format!("{fault:?}"));
        }
    }

    /// Returns the reason why no further commit is accepted; `None` while the store works.
    pub(crate) fn failed(&self) -> Option<String> {
        self.failure().clone()
    }

    /// Writes everything into the tables, so that the turn log is not needed until the store is used again.
    pub(crate) fn close(self) {
        if self.failure().is_some() {
            return;
        }
        if let Err(fault) = self.remove_log() {
            tracing::warn!(
                ?fault,
                "the turn log stays beside the store, and is read when that is opened"
            );
        }
    }

    fn remove_log(&self) -> Result<(), Fault> {
        let mut rows = self.rows();
        self.apply_in(&mut rows, Flush::Now)?;
        rows.set_log_size(LogSize::default())?;
        turns::remove_from(rows.path(), 1).map_err(Fault::Store)?;
        rows.checkpoint_on_close()
    }
}

impl Commits {
    fn check(&self, commit: &Commit) -> Result<(), CommitError> {
        if commit.epoch != self.epoch {
            return Err(CommitError::Fenced {
                ours: commit.epoch,
                theirs: self.epoch,
            });
        }
        if commit.sequence != self.last + 1 {
            let (ours, last) = (commit.sequence, self.last);
            let reason = format!("commit {ours} does not follow {last}, the last one");
            return Err(CommitError::NotApplied {
                reason,
                is_full: false,
            });
        }
        Ok(())
    }
}

/// Writes the commits into the tables that only the turn log has.
fn catch_up(rows: &mut Rows, content: &TurnLogContent) -> Result<(), Fault> {
    let commits = content.commits_after(rows.header().sequence)?;
    if !commits.is_empty() {
        tracing::info!(
            commits = commits.len(),
            "the turn log is written into the tables"
        );
    }
    let commits: Vec<_> = commits.into_iter().map(Arc::new).collect();
    let mut parts = commits.chunks(RECOVERED_AT_ONCE);
    parts.try_for_each(|commits| rows.write(commits, Flush::Now))
}

/// Makes the turn log of a store whose tables have everything, flushed.
fn open_log(rows: &Rows, limits: &Limits, reserve: &ReserveFile) -> Option<TurnLog> {
    let header = rows.header();
    let opened: Result<_, StoreError> = reserve.with_room(|| {
        TurnLog::open(
            rows.path(),
            header.identity,
            limits.segment_bytes,
            header.sequence,
        )
    });
    if let Err(error) = &opened {
        tracing::warn!(%error, "without a turn log every commit is written into the tables at once");
    }
    opened.ok()
}
