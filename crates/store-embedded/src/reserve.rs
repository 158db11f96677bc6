//! The reserve: a file beside the store that occupies disk blocks while there is room. When a write finds no space,
//! the store releases them piece by piece.
//!
//! So reports, cancelling and deleting continue on a full disk, and a store can be opened there, for which SQLite
//! needs a few blocks. New work is refused from the first released piece until the file has all its blocks again. A
//! crash in between is harmless: the file's blocks are the state.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ganger_store::{RepeatedWarning, Reserve, StoreError};
use ganger_types::Elapsed;
use rustix::fs::FallocateFlags;

use crate::create::{beside, open_own, sync_parent};
use crate::fault::Fault;

/// Number of pieces in which the file is released, so that other writers cannot take all of it at once.
const PIECE_COUNT: u64 = 16;
/// Smallest piece in bytes: SQLite needs 32 KiB for the index of its log, and a few pages.
const PIECE_MIN: u64 = 256 << 10;
/// With less free space in bytes, a full disk is assumed to be the cause of a failed write.
const NEARLY_NO_BYTES: u64 = 64 << 10;

/// The reserve file of a store.
pub(crate) struct ReserveFile {
    store: PathBuf,
    path: PathBuf,
    state: Mutex<Reserve>,
    made: Instant,
    failures: Mutex<RepeatedWarning>,
}

impl ReserveFile {
    /// Finds the reserve file beside a store; it has size 0 if there is no file.
    pub(crate) fn find(store: &Path) -> Self {
        let path = beside(store, "-reserve");
        let state = Reserve {
            held: allocated_bytes(&path),
            ..Reserve::default()
        };
        Self {
            store: store.to_path_buf(),
            path,
            state: Mutex::new(state),
            made: Instant::now(),
            failures: Mutex::default(),
        }
    }

    /// Logs a failure, but not each time: refilling is tried every second.
    fn warn(&self, doing: &str, error: &std::io::Error) {
        let now = Elapsed::default().after(self.made.elapsed());
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.occur(now).is_some() {
            let path = self.path.display();
            tracing::warn!(%path, %error, "the reserve cannot be {doing}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reserve> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the wanted and the allocated bytes.
    pub(crate) fn state(&self) -> Reserve {
        *self.lock()
    }

    /// Sets the size of the reserve in bytes and allocates it if there is room. Excess blocks are released.
    pub(crate) fn set_size(&self, bytes: u64) {
        let mut state = self.lock();
        state.wanted = bytes;
        if bytes == 0 {
            drop(std::fs::remove_file(&self.path));
            state.held = 0;
        } else if state.held > bytes {
            self.cut(&mut state, bytes);
        } else {
            drop(state);
            self.refill();
        }
    }

    /// Allocates missing blocks, as far as there is room for them and a quarter more, so that space that has just
    /// become free stays available to others. With half of the reserve allocated, new work is still refused.
    pub(crate) fn refill(&self) -> Reserve {
        let mut state = self.lock();
        let missing = state.wanted.saturating_sub(state.held);
        let free = free_bytes(&self.store).unwrap_or(0);
        let more = missing.min(free.saturating_sub(state.wanted / 4));
        // Allocating single blocks is not worth it.
        if missing > 0 && (more == missing || more >= PIECE_MIN) {
            let held = state.held;
            match take(&self.path, held, held + more) {
                Ok(()) => state.held = held + more,
                Err(error) => {
                    self.warn("filled", &error);
                    self.cut(&mut state, held);
                }
            }
        }
        if state.held >= state.wanted / 2 {
            state.is_open = false;
        }
        *state
    }

    /// Releases one piece to the file system; returns false if nothing is left.
    pub(crate) fn release(&self) -> bool {
        let mut state = self.lock();
        if state.held == 0 {
            return false;
        }
        let piece = (state.wanted.max(state.held) / PIECE_COUNT).max(PIECE_MIN);
        let left = state.held.saturating_sub(piece);
        state.is_open = true;
        self.cut(&mut state, left)
    }

    fn cut(&self, state: &mut Reserve, bytes: u64) -> bool {
        // Some file systems reuse freed blocks only after a flush.
        let cut = open_own(&self.path).and_then(|file| {
            file.set_len(bytes)?;
            file.sync_all()
        });
        state.held = allocated_bytes(&self.path).min(bytes);
        if let Err(error) = &cut {
            self.warn("given back", error);
        }
        cut.is_ok()
    }

    /// Runs an operation that may find the disk full. If it does, releases a piece of the reserve and runs it again,
    /// until no piece is left.
    pub(crate) fn with_room<T>(
        &self,
        mut work: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            match work() {
                Err(error) if self.is_for_want_of_room(&error) && self.release() => {}
                Err(error) => return Err(self.explain(error)),
                done => return done,
            }
        }
    }

    fn is_for_want_of_room(&self, error: &StoreError) -> bool {
        match error {
            StoreError::Full { .. } => true,
            // SQLite does not always report why it could not create or enlarge a file.
            StoreError::Io { .. } => {
                free_bytes(&self.store).is_some_and(|free| free < NEARLY_NO_BYTES)
            }
            _ => false,
        }
    }

    fn explain(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Io {
                path,
                doing,
                reason,
            } if free_bytes(&self.store).is_some_and(|free| free < NEARLY_NO_BYTES) => {
                StoreError::Full {
                    path,
                    doing,
                    reason,
                }
            }
            error => error,
        }
    }

    /// Releases a piece if this fault of an open store is a full disk; returns whether the operation should be
    /// repeated.
    pub(crate) fn release_for(&self, fault: &Fault) -> bool {
        fault.is_full() && self.release()
    }
}

/// Free bytes on the device of a file that users other than root may use; `None` if unknown.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let there = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let stat = rustix::fs::statvfs(path)
        .or_else(|_| rustix::fs::statvfs(there.unwrap_or(Path::new("."))))
        .ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Bytes of disk blocks allocated to a file, at most its length.
fn allocated_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len().min(file.blocks().saturating_mul(512)))
}

/// Allocates blocks from offset `held` up to `wanted`.
fn take(path: &Path, held: u64, wanted: u64) -> std::io::Result<()> {
    let is_new = !path.exists();
    let file = open_own(path)?;
    let taken = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, wanted);
    match taken.map_err(std::io::Error::from) {
        Err(error) if error.kind() == ErrorKind::Unsupported => write_noise(&file, held, wanted)?,
        other => other?,
    }
    file.sync_all()?;
    if is_new {
        sync_parent(path).map_err(std::io::Error::other)?;
    }
    Ok(())
}

/// Allocates blocks by writing incompressible content, for file systems without preallocation.
fn write_noise(mut file: &File, held: u64, wanted: u64) -> std::io::Result<()> {
    use std::io::Seek as _;
    file.set_len(held)?;
    file.seek(std::io::SeekFrom::Start(held))?;
    let mut word = wanted | 1;
    let mut noise = vec![0; 1 << 16];
    let mut at = held;
    while at < wanted {
        for bytes in noise.chunks_exact_mut(8) {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let length = usize::try_from(wanted - at).map_or(noise.len(), |left| left.min(noise.len()));
        file.write_all(&noise[..length])?;
        at += u64::try_from(length).unwrap_or(u64::MAX);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_blocks_are_on_disk_are_given_back_in_pieces_and_taken_again() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let store = directory.path().join("1.db");
        let reserve = ReserveFile::find(&store);
        assert!(!reserve.release(), "there is nothing");
        reserve.set_size(8 << 20);
        assert_eq!(allocated_bytes(&reserve.path), 8 << 20);
        assert!(reserve.state().is_whole());
        let mut pieces = 0;
        while reserve.release() {
            pieces += 1;
            assert!(reserve.state().is_open);
        }
        assert_eq!(pieces, 16);
        assert_eq!(allocated_bytes(&reserve.path), 0);
        assert!(reserve.refill().is_whole());
        assert!(!reserve.state().is_open);
        // This is the state after a crash with half of it gone.
        while reserve.state().held > 4 << 20 {
            reserve.release();
        }
        let reserve = ReserveFile::find(&store);
        assert_eq!(reserve.state().held, 4 << 20);
        reserve.set_size(2 << 20);
        assert_eq!(allocated_bytes(&reserve.path), 2 << 20);
        reserve.set_size(0);
        assert!(!reserve.path.exists());
    }

    #[test]
    fn what_is_written_where_blocks_cannot_be_taken_otherwise_is_all_there() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("noise");
        let file = open_own(&path).expect("it can be made");
        write_noise(&file, 0, 100_000).expect("there is room");
        write_noise(&file, 50_000, 300_001).expect("there is room");
        file.sync_all().expect("there is room");
        assert_eq!(file.metadata().expect("it is there").len(), 300_001);
        assert!(allocated_bytes(&path) >= 300_001, "all of it is on disk");
    }
}
