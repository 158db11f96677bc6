//! A segment: a file of fixed size, filled with zeros when it is made.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ganger_store::StoreError;

use crate::create::{open_own, sync_parent};
use crate::fault::io;

/// Number of bytes written at a time when a segment is filled.
const FILL_BYTES: u64 = 1 << 14;

/// A segment of the turn log that is open for appending.
pub(super) struct Segment {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Sequence of the last commit written into it; 0 if there is none.
    pub(super) last: u64,
}

impl Segment {
    /// Opens the segment, or makes it with this size and flushes it and its name.
    pub(super) fn make(path: PathBuf, bytes: u64) -> Result<Self, StoreError> {
        let file = open_or_fill(&path, bytes).map_err(|error| io(&path, "created", error))?;
        sync_parent(&path)?;
        Ok(Self {
            path,
            file,
            bytes,
            last: 0,
        })
    }

    /// Returns the size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), StoreError> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|error| io(&self.path, "written", error))
    }

    pub(super) fn flush(&self) -> Result<(), StoreError> {
        let flushed = self.file.sync_data();
        flushed.map_err(|error| io(&self.path, "flushed", error))
    }
}

/// A file of the right size is used as it is: its records are old, and the tables have them.
fn open_or_fill(path: &Path, bytes: u64) -> std::io::Result<File> {
    let mut file = open_own(path)?;
    if file.metadata()?.len() == bytes {
        return Ok(file);
    }
    // The zeros are really written, so that a later flush changes content only.
    let filled = file.set_len(0).and_then(|()| {
        let zeros = vec![0; usize::try_from(FILL_BYTES.min(bytes)).unwrap_or(0)];
        let mut left = bytes;
        while left > 0 {
            let length = usize::try_from(left).map_or(zeros.len(), |left| left.min(zeros.len()));
            file.write_all(&zeros[..length])?;
            left -= u64::try_from(length).unwrap_or(left);
        }
        file.sync_all()
    });
    if let Err(error) = filled {
        // A partial file would only take space that is needed elsewhere.
        drop(file.set_len(0));
        return Err(error);
    }
    Ok(file)
}

/// Removes a segment, if it is there.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io(path, "removed", error)),
        _ => Ok(()),
    }
}
