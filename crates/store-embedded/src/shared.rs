//! State shared by the writer, the readers and the thread that writes the tables, so that a reader never misses an
//! acknowledged commit.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ganger_store::StoreError;
use ganger_store::waiting::CommitQueue;
use rusqlite::Connection;

use crate::fault::{Fault, io};
use crate::flushes::Flushes;
use crate::reserve::ReserveFile;
use crate::rows::Flush;
use crate::session::Session;

/// The open store, for threads that write or wait for writes.
pub(crate) struct Shared {
    path: PathBuf,
    /// The session; `None` before the store is opened, and after a commit with unknown outcome. Who uses it holds the
    /// lock for reading; who opens or ends it, for writing.
    session: RwLock<Option<Session>>,
    queue: Arc<CommitQueue>,
    reserve: Arc<ReserveFile>,
    flushes: Flushes,
}

impl Shared {
    pub(crate) fn new(path: &Path, reserve: Arc<ReserveFile>) -> Self {
        Self {
            reserve,
            path: path.to_path_buf(),
            session: RwLock::new(None),
            queue: Arc::default(),
            flushes: Flushes::default(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the reserve of disk blocks.
    pub(crate) fn reserve(&self) -> &Arc<ReserveFile> {
        &self.reserve
    }

    /// Returns the count of flushes.
    pub(crate) fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    /// Returns the commits that wait for the tables.
    pub(crate) fn queue(&self) -> &Arc<CommitQueue> {
        &self.queue
    }

    /// Locks the session, for those who use it.
    pub(crate) fn session(&self) -> RwLockReadGuard<'_, Option<Session>> {
        let session = self.session.read();
        session.expect("a store that broke is not used again")
    }

    /// Locks the session, for the one who opens or ends it. Everybody else waits.
    pub(crate) fn session_mut(&self) -> RwLockWriteGuard<'_, Option<Session>> {
        let session = self.session.write();
        session.expect("a store that broke is not used again")
    }

    /// Waits until the tables have everything acknowledged before the call; usually they do. Returns false if the
    /// disk is full: then only the session can read it.
    ///
    /// # Errors
    /// If the tables cannot be written, or the store must be opened again first.
    pub(crate) fn apply_waiting(&self) -> Result<bool, StoreError> {
        if !self.queue.is_behind() {
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

    /// Reads through the session, which cannot write the tables meanwhile.
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
        work: impl FnOnce(&Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &*self.session() {
            Some(session) => work(session),
            None => Err(io(&self.path, "read", "it has to be opened again first")),
        }
    }
}
