//! State shared by the writer and the readers, so that a reader never misses an acknowledged commit.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ganger_store::StoreError;
use rusqlite::Connection;

use crate::fault::{Fault, io};
use crate::reserve::ReserveFile;
use crate::session::{Flush, Session};

/// The open store, for threads that write or wait for writes.
pub(crate) struct Shared {
    path: PathBuf,
    /// The session; `None` before the store is opened, and after a commit with unknown outcome.
    session: Mutex<Option<Session>>,
    /// Whether an acknowledged commit is not in the tables yet.
    is_behind: AtomicBool,
    reserve: Arc<ReserveFile>,
}

impl Shared {
    pub(crate) fn new(path: &Path, reserve: Arc<ReserveFile>) -> Self {
        Self {
            reserve,
            path: path.to_path_buf(),
            session: Mutex::new(None),
            is_behind: AtomicBool::new(false),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the reserve of disk blocks.
    pub(crate) fn reserve(&self) -> &Arc<ReserveFile> {
        &self.reserve
    }

    /// Locks the session.
    pub(crate) fn lock(&self) -> Guard<'_> {
        let session = self.session.lock();
        Guard {
            session: session.expect("a store that broke is not used again"),
            is_behind: &self.is_behind,
        }
    }

    /// Waits until the tables have everything acknowledged before the call; usually they do. Returns false if the
    /// disk is full: then only the session can read it.
    ///
    /// # Errors
    /// If the tables cannot be written, or the store must be opened again first.
    pub(crate) fn apply_waiting(&self) -> Result<bool, StoreError> {
        if !self.is_behind.load(Ordering::Acquire) {
            return Ok(true);
        }
        self.with_session(|session| match session.apply_waiting(Flush::Later) {
            Ok(()) => Ok(true),
            Err(fault) if fault.is_full() => Ok(false),
            Err(fault) => {
                session.record_failed_upkeep(&fault);
                Err(fault.at(&self.path, "written"))
            }
        })
    }

    /// Reads through the session, which cannot write meanwhile.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        self.with_session(|session| {
            let found = session.read(read);
            found.map_err(|fault| fault.at(&self.path, "read"))
        })
    }

    fn with_session<T>(
        &self,
        work: impl FnOnce(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut guard = self.lock();
        let Some(session) = guard.session.as_mut() else {
            return Err(io(&self.path, "read", "it has to be opened again first"));
        };
        work(session)
    }
}

/// The locked session. Dropping it updates whether the tables are behind.
pub(crate) struct Guard<'a> {
    pub(crate) session: MutexGuard<'a, Option<Session>>,
    is_behind: &'a AtomicBool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // Without a session the flag stays: the waiting commits are still in the turn log.
        if let Some(session) = &*self.session {
            self.is_behind
                .store(session.has_waiting(), Ordering::Release);
        }
    }
}
