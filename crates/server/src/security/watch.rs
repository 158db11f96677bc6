//! Notices that files have changed.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::Security;

/// How often the files are looked at, and whether a token has expired: rights end within a second.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// What tells one state of a file from another, without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// Reads certificates and tokens again when a file has changed, until `stopping`.
pub(crate) async fn follow_files(security: Arc<Security>, stopping: CancellationToken) {
    let paths = security.files.paths();
    if paths.is_empty() {
        return;
    }
    let mut seen = security.stamps_at_start.clone();
    let mut expired_until = Timestamp::now();
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
        let look = paths.clone();
        let looked = tokio::task::spawn_blocking(move || stamps(&look)).await;
        let now = looked.unwrap_or_default();
        security.audit.settle();
        let until = Timestamp::now();
        security.note_expired(std::mem::replace(&mut expired_until, until), until);
        if now != seen {
            seen = now;
            let security = Arc::clone(&security);
            // Reads files, which must not hold up other tasks. A panic there has been seen by its hook.
            let _ = tokio::task::spawn_blocking(move || security.reload()).await;
        }
    }
}

/// In the order of the files; `None` for one that cannot be looked at.
pub(super) fn stamps(paths: &[PathBuf]) -> Vec<Option<FileStamp>> {
    paths.iter().map(|path| stamp(path)).collect()
}

/// Of the file behind the name: secrets are often links that are turned to a new place.
fn stamp(path: &Path) -> Option<FileStamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileStamp {
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}
