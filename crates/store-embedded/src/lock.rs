//! One process per store: a lock that the operating system releases when its holder dies (`rel D11`).

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use ganger_store::StoreError;
use rustix::fs::{FlockOperation, flock};

use crate::create::open_own;
use crate::fault::io;

/// The lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Returns the path `<store>.lock`. The file stays when the store is closed: removing it would let two processes lock
/// two different files.
fn lock_path(store: &Path) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

impl Lock {
    /// Takes the lock of the store at `store`; the error names the process that holds it.
    pub(crate) fn take(store: &Path) -> Result<Self, StoreError> {
        let path = lock_path(store);
        let mut file = open_own(&path).map_err(|error| io(&path, "opened", error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let path = store.display().to_string();
                return Err(StoreError::InUse {
                    path,
                    holder: holder(&mut file),
                });
            }
            Err(error) => return Err(io(&path, "locked", error)),
        }
        // The process id is only shown in messages; the operating system keeps the lock itself.
        let note = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        if let Err(error) = note(&mut file) {
            tracing::debug!(path = %path.display(), %error, "the lock file does not name its holder");
        }
        Ok(Self { _file: file })
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    // If the holder is writing it right now, its process id is missing from the message.
    let _ = file.take(32).read_to_string(&mut text);
    text.trim()
        .parse::<u32>()
        .map_or_else(|_| String::new(), |pid| format!(" (pid {pid})"))
}
