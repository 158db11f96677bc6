//! The writing side: opening, committing, upkeep.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ganger_store::merge::Merged;
use ganger_store::{CommitError, Loaded, Opened, Store, StoreError};
use ganger_types::{Commit, JobKey, ShardId};
use rusqlite::Connection;

use crate::commit::{Places, Writing};
use crate::fault::{self, Fault, io};
use crate::lock::Lock;
use crate::meta::Header;
use crate::reader::EmbeddedReader;
use crate::row::from_sql;
use crate::{connect, create, load, wal};

/// The log is copied into the file when it has so many pages: 32 MiB. Sooner costs writes, later
/// makes the pause longer and recovery slower.
const LOG_PAGES_MAX: u64 = 16_384;
/// While nothing waits, it is copied from so many pages on.
const LOG_PAGES_IDLE: u64 = 512;

/// The embedded store.
pub struct EmbeddedStore {
    path: PathBuf,
    /// `None` before `open`, and after a commit whose outcome is not known.
    session: Option<Session>,
    /// Dropped last, when no connection is left.
    _lock: Lock,
}

/// What is known while the store is open.
struct Session {
    connection: Connection,
    header: Header,
    places: Places,
    new_from: JobKey,
    /// Pages in the log, told by SQLite after each commit.
    log_pages: Arc<AtomicU64>,
    /// Why nothing may be committed any more.
    broken: Option<String>,
}

impl EmbeddedStore {
    /// Opens the store in the file `path`, or makes it with the directories above it. It is locked
    /// against other processes until it is dropped; call [`Store::open`] before anything else.
    ///
    /// # Errors
    /// If another process has it, it is damaged, newer than this program, or of another shard.
    pub fn create_or_open(path: impl AsRef<Path>, shard: &ShardId) -> Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        create::make_parent(&path)?;
        let lock = Lock::take(&path)?;
        if !path.exists() {
            create::create(&path, shard)?;
        }
        connect::inspect(&path)?;
        wal::inspect(&path)?;
        check_shard(&path, shard)?;
        create::upgrade(&path)?;
        Ok(Self {
            path,
            session: None,
            _lock: lock,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn session(&mut self) -> Result<&mut Session, CommitError> {
        let closed = || CommitError::Unknown("the store has to be opened again first".to_owned());
        self.session.as_mut().ok_or_else(closed)
    }

    #[cfg(test)]
    pub(crate) fn connection(&self) -> &Connection {
        &self
            .session
            .as_ref()
            .expect("the test has opened it")
            .connection
    }
}

fn check_shard(path: &Path, shard: &ShardId) -> Result<(), StoreError> {
    let connection = connect::writer(path)?;
    let header = Header::read_from(&connection).map_err(|fault| fault.at(path, "read"))?;
    if header.shard == shard.as_str() {
        return Ok(());
    }
    Err(StoreError::OtherShard {
        path: path.display().to_string(),
        found: header.shard,
        wanted: shard.to_string(),
    })
}

impl Session {
    /// Connects and takes the store over.
    ///
    /// The log is copied into the file and both are flushed first: after a failed flush the system
    /// may show pages that are not on disk, and what is built upon must be.
    fn open(mut connection: Connection) -> Result<Self, Fault> {
        checkpoint(&connection, "TRUNCATE")?;
        let log_pages = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&log_pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            told.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        let old = Header::read_from(&connection)?;
        let mut header = old.clone();
        header.epoch.0 += 1;
        if !header.replace(&connection, &old)? {
            return Err(Fault::row("meta", "1", "it cannot be replaced"));
        }
        let new_from = new_from(&connection)?.max(header.meta.next_key);
        let places = Places::new();
        Ok(Self {
            connection,
            header,
            places,
            new_from,
            log_pages,
            broken: None,
        })
    }

    /// Writes a commit, in a transaction that was begun.
    fn write(&mut self, commit: &Commit) -> Result<(), Fault> {
        let merged = Merged::new(&commit.changes);
        let Self {
            connection,
            header,
            places,
            new_from,
            ..
        } = self;
        let mut writing = Writing::new(connection, places, *new_from, header.counts);
        writing.write(&merged)?;
        let after = Header {
            sequence: commit.sequence,
            meta: commit.meta,
            counts: writing.counts,
            shard: header.shard.clone(),
            ..*header
        };
        drop(writing);
        if !after.replace(connection, header)? {
            return Err(Fault::Senseless(
                "the epoch or sequence has changed under it".to_owned(),
            ));
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        *header = after;
        let largest = merged.jobs.last_key_value().map_or(0, |(key, _)| key.0 + 1);
        *new_from = JobKey(new_from.0.max(largest));
        Ok(())
    }

    /// Takes a failed commit back.
    fn roll_back(&mut self) -> Result<(), Fault> {
        // What was numbered in the transaction is not numbered any more.
        self.places.clear();
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        Ok(())
    }

    /// Copies the log into the file if it has at least `pages`.
    fn tend_log(&mut self, pages: u64) -> Result<(), Fault> {
        if self.log_pages.load(Ordering::Relaxed) < pages {
            return Ok(());
        }
        let is_done = checkpoint(&self.connection, "PASSIVE")?;
        if is_done {
            // The next commit starts the log anew. If readers held it back it is tried again.
            self.log_pages.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Begins a transaction and writes a commit, if that is its place in the order and the store is still ours.
    ///
    /// One transaction for both: another one only to look would cost as many locks as this one.
    fn commit(&mut self, commit: &Commit) -> Result<(), CommitError> {
        if let Some(reason) = &self.broken {
            return Err(CommitError::Unknown(reason.clone()));
        }
        let begun = self.connection.prepare_cached("BEGIN IMMEDIATE");
        let begun = begun.and_then(|mut begin| begin.execute([]));
        begun.map_err(|error| Fault::Sql(error).into_commit_error())?;
        self.judge(commit)?;
        self.write(commit).map_err(Fault::into_commit_error)
    }

    fn judge(&self, commit: &Commit) -> Result<(), CommitError> {
        let stored = Header::read_from(&self.connection).map_err(Fault::into_commit_error)?;
        if commit.epoch != stored.epoch {
            return Err(CommitError::Fenced {
                ours: commit.epoch,
                theirs: stored.epoch,
            });
        }
        if commit.sequence != stored.sequence + 1 {
            let (ours, last) = (commit.sequence, stored.sequence);
            let reason = format!("commit {ours} does not follow {last}, the last one");
            return Err(CommitError::NotApplied {
                reason,
                is_full: false,
            });
        }
        Ok(())
    }
}

/// Copies the log into the file; whether all of it was.
fn checkpoint(connection: &Connection, mode: &str) -> Result<bool, Fault> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    let (log, done): (i64, i64) =
        connection.query_row(&sql, [], |row| Ok((row.get(1)?, row.get(2)?)))?;
    Ok(log == done)
}

fn new_from(connection: &Connection) -> Result<JobKey, Fault> {
    let sql = "SELECT max(coalesce((SELECT max(key) FROM jobs), -1),
                          coalesce((SELECT max(key) FROM finished), -1)) + 1";
    Ok(JobKey(from_sql(
        connection.query_row(sql, [], |row| row.get(0))?,
    )))
}

impl Store for EmbeddedStore {
    type Reader = EmbeddedReader;

    fn open(&mut self) -> Result<Opened, StoreError> {
        self.session = None;
        wal::inspect(&self.path)?;
        let connection = connect::writer(&self.path)?;
        let session = Session::open(connection).map_err(|fault| fault.at(&self.path, "opened"))?;
        let header = &session.header;
        let opened = Opened {
            epoch: header.epoch,
            sequence: header.sequence,
            meta: header.meta,
        };
        self.session = Some(session);
        Ok(opened)
    }

    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        let Some(session) = &self.session else {
            return Err(io(&self.path, "read", "it has to be opened first"));
        };
        let connection = &session.connection;
        connect::reading_once(connection, || load::load(connection, each))
            .map_err(|fault| fault.at(&self.path, "read"))
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), CommitError> {
        let session = self.session()?;
        if let Err(error) = session.commit(commit) {
            let rolled_back = session.roll_back();
            if matches!(error, CommitError::Unknown(_)) || rolled_back.is_err() {
                self.session = None;
                return Err(match error {
                    CommitError::Unknown(reason) => CommitError::Unknown(reason),
                    other => CommitError::Unknown(other.to_string()),
                });
            }
            // A full log has room again once it is copied; should that fail too, nothing is lost.
            if let Err(fault) = session.tend_log(LOG_PAGES_IDLE) {
                tracing::debug!(?fault, "the log could not be copied into the file");
            }
            return Err(error);
        }
        if let Err(fault) = session.tend_log(LOG_PAGES_MAX) {
            session.note_failed_upkeep(fault);
        }
        Ok(())
    }

    fn reader(&self) -> Result<EmbeddedReader, StoreError> {
        EmbeddedReader::open(&self.path)
    }

    fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.path).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn idle(&mut self) -> Result<(), StoreError> {
        let path = self.path.clone();
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        match session.tend_log(LOG_PAGES_IDLE) {
            Err(Fault::Sql(error)) if fault::is_full(&error) => {
                session.note_failed_upkeep(Fault::Sql(error));
                Ok(())
            }
            Err(fault) => {
                session.broken = Some(format!("{fault:?}"));
                Err(fault.at(&path, "written"))
            }
            Ok(()) => Ok(()),
        }
    }
}

impl Session {
    /// The commits are safe in the log. A full disk is waited out; a failed flush is not ignored:
    /// the next commit is refused until the store has been opened again (`rel D6`).
    fn note_failed_upkeep(&mut self, fault: Fault) {
        match fault {
            Fault::Sql(error) if fault::is_full(&error) => {
                tracing::warn!(%error, "the log cannot be copied into the file: the disk is full");
            }
            fault => {
                tracing::error!(?fault, "the log cannot be copied into the file");
                self.broken = Some(format!("{fault:?}"));
            }
        }
    }
}
