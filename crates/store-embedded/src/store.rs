//! The writer: opening, committing, upkeep.

use std::path::Path;
use std::sync::Arc;

use ganger_store::waiting::RowWork;
use ganger_store::{CommitError, Loaded, LogState, Opened, Reserve, Store, StoreError};
use ganger_types::{Commit, ShardId};

use crate::fault::io;
use crate::limits::Limits;
use crate::lock::Lock;
use crate::meta::Header;
use crate::reader::EmbeddedReader;
use crate::reserve::{self, ReserveFile};
use crate::row_thread::RowThread;
use crate::session::Session;
use crate::shared::Shared;
use crate::{connect, create, load, recover, wal};

/// The embedded store, kept in an SQLite file and a turn log.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    limits: Limits,
    /// Whether a write or a flush has failed since the store was opened.
    has_failed: bool,
    /// The thread that writes the tables; `None` before the store is opened, and if it has none.
    row_thread: Option<RowThread>,
    /// The lock, dropped last, when no connection is left.
    _lock: Lock,
}

impl EmbeddedStore {
    /// Opens the store in the file `path`, or creates it with the directories above. The store is locked against
    /// other processes until it is dropped; call [`Store::open`] before anything else.
    ///
    /// On a full disk the reserve of an earlier run provides the space that opening needs.
    ///
    /// # Errors
    /// If another process has the store open, or if it is damaged, newer than this program, or of another shard.
    pub fn create_or_open(path: impl AsRef<Path>, shard: &ShardId) -> Result<Self, StoreError> {
        Self::with_limits(path.as_ref(), shard, Limits::default())
    }

    /// [`Self::create_or_open`] with other limits, by which tests reach the rarer writes sooner.
    ///
    /// # Errors
    /// As for [`Self::create_or_open`].
    #[doc(hidden)]
    pub fn with_limits(path: &Path, shard: &ShardId, limits: Limits) -> Result<Self, StoreError> {
        create::make_parent(path)?;
        let lock = Lock::take(path)?;
        let reserve = Arc::new(ReserveFile::find(path));
        reserve.with_room(|| {
            if !path.exists() {
                create::create(path, shard)?;
            }
            connect::inspect(path)?;
            wal::rewrite(path)?;
            recover::inspect(path)?;
            check_shard(path, shard)?;
            create::upgrade(path)
        })?;
        Ok(Self {
            shared: Arc::new(Shared::new(path, reserve)),
            limits,
            has_failed: false,
            row_thread: None,
            _lock: lock,
        })
    }

    /// Reserves `bytes` of the disk for operations that must continue when the disk is full; 0 (the default) reserves
    /// none. They are allocated now if there is room, otherwise by the first [`Store::keep_reserve`] that finds room.
    #[must_use]
    pub fn with_reserve(self, bytes: u64) -> Self {
        self.shared.reserve().set_size(bytes);
        self
    }

    /// Returns the path of the database file.
    pub fn path(&self) -> &Path {
        self.shared.path()
    }

    #[cfg(test)]
    pub(crate) fn on_connection<T>(&self, run: impl FnOnce(&rusqlite::Connection) -> T) -> T {
        let session = self.shared.session();
        let session = session.as_ref().expect("the test has opened it");
        session.on_connection(run)
    }
}

impl Drop for EmbeddedStore {
    /// Closes the store, which leaves a single file if nothing prevents it.
    fn drop(&mut self) {
        drop(self.row_thread.take());
        if std::thread::panicking() {
            return;
        }
        if let Some(session) = self.shared.session_mut().take() {
            session.close();
        }
        // Space freed by closing is reserved for the next start.
        self.shared.reserve().refill();
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

impl Store for EmbeddedStore {
    type Reader = EmbeddedReader;

    fn open(&mut self) -> Result<Opened, StoreError> {
        let path = self.shared.path();
        let mut current = self.shared.session_mut();
        // An older session ends without further writes: the turn log has what it has not written.
        *current = None;
        let (reserve, limits) = (self.shared.reserve(), self.limits);
        let session = reserve.with_room(|| {
            wal::rewrite(path)?;
            if let Some(doubt) = recover::inspect(path)? {
                tracing::warn!(store = %path.display(), "{doubt}");
            }
            let connection = connect::writer(path)?;
            let queue = Arc::clone(self.shared.queue());
            let has_failed = self.has_failed;
            Session::open(
                path.to_path_buf(),
                limits,
                connection,
                reserve,
                queue,
                self.shared.flushes().clone(),
                has_failed,
            )
            .map_err(|fault| fault.at(path, "opened"))
        })?;
        self.has_failed = false;
        let header = session.header();
        *current = Some(session);
        drop(current);
        if limits.has_row_thread && self.row_thread.is_none() {
            self.row_thread = Some(RowThread::start(&self.shared, limits)?);
        }
        Ok(Opened {
            epoch: header.epoch,
            sequence: header.sequence,
            meta: header.meta,
            away: None,
        })
    }

    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        self.shared
            .read(|connection| connect::reading_once(connection, || load::load(connection, each)))
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        let session = self.shared.session();
        let Some(open) = &*session else {
            let reason = "the store has to be opened again first";
            return Err(CommitError::Unknown(reason.to_owned()));
        };
        let committed = open.commit(commit);
        match &committed {
            Err(CommitError::Unknown(_)) => {
                drop(session);
                *self.shared.session_mut() = None;
                self.has_failed = true;
            }
            Err(_) => {
                // A full log has room again once it is checkpointed; if that fails too, nothing is lost.
                if let Err(fault) = open.checkpoint_if_worthwhile() {
                    tracing::debug!(?fault, "the log could not be copied into the file");
                }
            }
            Ok(()) => {}
        }
        committed
    }

    fn reader(&self) -> Result<EmbeddedReader, StoreError> {
        let reserve = self.shared.reserve();
        reserve.with_room(|| EmbeddedReader::open(Arc::clone(&self.shared)))
    }

    fn flushes(&self) -> u64 {
        self.shared.flushes().get()
    }

    fn size_bytes(&self) -> Option<u64> {
        size_of_files(self.path())
    }

    fn log_state(&self) -> LogState {
        LogState {
            commits_behind: self.shared.queue().commits_behind(),
            ..LogState::default()
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        reserve::free_bytes(self.path())
    }

    fn keep_reserve(&mut self) -> Reserve {
        self.shared.reserve().refill()
    }

    fn reserve(&self) -> Reserve {
        self.shared.reserve().state()
    }

    fn idle(&mut self) -> Result<(), StoreError> {
        let path = self.shared.path();
        let session = self.shared.session();
        let Some(open) = &*session else {
            return Ok(());
        };
        if self.row_thread.is_some() {
            self.shared.queue().ask(RowWork::WriteIdle);
            let Some(reason) = open.failed() else {
                return Ok(());
            };
            self.has_failed = true;
            return Err(io(path, "written", reason));
        }
        match open.tend(RowWork::WriteIdle) {
            Err(fault) if !fault.is_full() => {
                self.has_failed = true;
                Err(fault.at(path, "written"))
            }
            _ => Ok(()),
        }
    }
}

/// Size of the database file and of the files beside it whose names begin with its name; `None` if they cannot be listed.
fn size_of_files(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let files = std::fs::read_dir(directory.unwrap_or(Path::new("."))).ok()?;
    let ours = files.flatten().filter(|file| {
        let found = file.file_name();
        let rest = found.to_str().and_then(|found| found.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    Some(
        ours.flat_map(|file| file.metadata())
            .map(|about| about.len())
            .sum(),
    )
}
