//! The writing connection: commits become rows here, many of them in one transaction.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ganger_types::Commit;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::fault::{Fault, io};
use crate::flushes::{self, Flushes};
use crate::meta::Header;
use crate::reserve::ReserveFile;
use crate::tables::Tables;
use crate::turns::LogSize;
use crate::wal;

/// Whether a transaction is flushed when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// It is flushed, with everything before it.
    Now,
    /// It is flushed later; the turn log has its commits.
    Later,
}

/// The tables, open for writing.
pub(crate) struct Rows {
    path: PathBuf,
    connection: Connection,
    tables: Tables,
    /// Pages in the write-ahead log, as SQLite reported after the last transaction.
    log_pages: Arc<AtomicU64>,
    /// Flush setting of the connection.
    flush: Flush,
    /// Whether the tables have changes that are not flushed.
    is_unflushed: bool,
    reserve: Arc<ReserveFile>,
    flushes: Flushes,
}

impl Rows {
    /// Takes over a connection whose write-ahead log is on disk.
    ///
    /// That log is first copied into the file and both are flushed: after a failed flush the system may show pages of
    /// the file that are not on disk.
    ///
    /// # Errors
    /// If the write-ahead log cannot be copied, because another process reads for long, or after a failed write or
    /// flush.
    pub(crate) fn open(
        path: PathBuf,
        mut connection: Connection,
        reserve: Arc<ReserveFile>,
        flushes: Flushes,
        has_failed: bool,
    ) -> Result<Self, Fault> {
        // A connection dropped after a failed flush must not copy pages that may not be on disk.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        if !checkpoint(&connection, "TRUNCATE")? {
            if has_failed {
                let reason = "a write has failed before, and another process (`ganger check`, `ganger backup`) \
                              reads it: wait until that has ended";
                return Err(Fault::Store(io(&path, "opened", reason)));
            }
            // Pages that are not in the file yet stay in the write-ahead log.
            wal::flush(&path).map_err(Fault::Store)?;
        }
        let log_pages = Arc::new(AtomicU64::new(0));
        let reported = Arc::clone(&log_pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            reported.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        let tables = Tables::read_from(&connection)?;
        Ok(Self {
            path,
            connection,
            tables,
            log_pages,
            flush: Flush::Now,
            is_unflushed: false,
            reserve,
            flushes,
        })
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

    /// Changes the header, durably.
    pub(crate) fn change_header(&mut self, change: impl FnOnce(&mut Header)) -> Result<(), Fault> {
        self.set_flush(Flush::Now)?;
        self.tables.change_header(&self.connection, change)?;
        self.flushes.add(flushes::ONE);
        self.is_unflushed = false;
        Ok(())
    }

    /// Records the size of the turn log in the header, if it is another one.
    pub(crate) fn set_log_size(&mut self, size: LogSize) -> Result<(), Fault> {
        if self.header().log == size {
            return Ok(());
        }
        self.change_header(|header| header.log = size)
    }

    /// Writes consecutive commits in one transaction; on a full disk with space from the reserve. After a fault the
    /// tables are as before.
    pub(crate) fn write(&mut self, commits: &[Arc<Commit>], flush: Flush) -> Result<(), Fault> {
        loop {
            match self.try_write(commits, flush) {
                Err(fault) => {
                    self.roll_back()?;
                    if !self.reserve.release_for(&fault) {
                        return Err(fault);
                    }
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    fn try_write(&mut self, commits: &[Arc<Commit>], flush: Flush) -> Result<(), Fault> {
        self.set_flush(flush)?;
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        let commits = commits.iter().map(AsRef::as_ref);
        let after = self.tables.write_commits(&self.connection, commits)?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        if flush == Flush::Now {
            self.flushes.add(flushes::ONE);
        }
        self.tables.committed(after);
        self.is_unflushed = flush == Flush::Later;
        Ok(())
    }

    /// Flushes what was written with [`Flush::Later`].
    ///
    /// SQLite does not flush at the end of a transaction that has changed nothing, whatever the setting.
    pub(crate) fn flush(&mut self) -> Result<(), Fault> {
        if self.is_unflushed {
            wal::flush(&self.path).map_err(Fault::Store)?;
            self.flushes.add(flushes::ONE);
            self.is_unflushed = false;
        }
        Ok(())
    }

    /// Reads one state of the tables inside a transaction.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let tx = self.connection.unchecked_transaction()?;
        let found = read(&tx)?;
        tx.commit()?;
        Ok(found)
    }

    /// Reads one state of the tables with these commits applied in memory, and takes them back after the read: for a
    /// full disk, on which they cannot be written.
    pub(crate) fn read_in_memory<T>(
        &mut self,
        commits: &[Arc<Commit>],
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.connection.pragma_update(None, "cache_spill", false)?;
        let applied = self.apply_in_memory(commits);
        let found = applied.and_then(|()| read(&self.connection));
        // Both are needed even after an error: the connection continues to write.
        let rolled_back = self.roll_back();
        let spills = self.connection.pragma_update(None, "cache_spill", true);
        let found = found?;
        rolled_back?;
        spills?;
        Ok(found)
    }

    /// Begins a transaction and applies the commits in it.
    fn apply_in_memory(&mut self, commits: &[Arc<Commit>]) -> Result<(), Fault> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let commits = commits.iter().map(AsRef::as_ref);
        self.tables.write_commits(&self.connection, commits)?;
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

    /// Rolls a failed transaction back. If that fails too, the state of the connection is unknown.
    fn roll_back(&mut self) -> Result<(), Fault> {
        self.tables.forget_queue_numbers();
        if self.connection.is_autocommit() {
            return Ok(());
        }
        let rolled_back = self.connection.execute_batch("ROLLBACK");
        rolled_back.map_err(|error| Fault::Store(io(&self.path, "rolled back", error)))
    }

    /// Copies the write-ahead log into the file if it has at least `pages` pages.
    pub(crate) fn checkpoint_from(&mut self, pages: u64) -> Result<(), Fault> {
        if self.log_pages.load(Ordering::Relaxed) < pages {
            return Ok(());
        }
        let is_copied = loop {
            match checkpoint(&self.connection, "PASSIVE") {
                Err(fault) if self.reserve.release_for(&fault) => {}
                done => break done?,
            }
        };
        self.flushes.add(flushes::CHECKPOINT);
        if is_copied {
            // The next transaction restarts the log. If readers prevented that, it is tried again.
            self.log_pages.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies the whole write-ahead log into the file now, as far as readers allow.
    pub(crate) fn checkpoint(&self) -> Result<(), Fault> {
        self.flushes.add(flushes::CHECKPOINT);
        checkpoint(&self.connection, "PASSIVE").map(drop)
    }

    /// Lets SQLite copy its log into the file and remove it when the connection closes.
    pub(crate) fn checkpoint_on_close(&self) -> Result<(), Fault> {
        let is_off = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        self.connection.set_db_config(is_off, false)?;
        Ok(())
    }

    /// Path of the database file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Checkpoints the write-ahead log; returns whether all of it was copied.
fn checkpoint(connection: &Connection, mode: &str) -> Result<bool, Fault> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    let (log, done): (i64, i64) =
        connection.query_row(&sql, [], |row| Ok((row.get(1)?, row.get(2)?)))?;
    Ok(log == done)
}
