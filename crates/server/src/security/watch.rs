//! Watches files for changes.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::Security;

/// Interval between checks of the files and of expired tokens, so that rights end within a second.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Distinguishes states of a file without reading it.
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
            // Reading files blocks, so it runs on a separate thread. A panic there is reported by its hook.
            let _ = tokio::task::spawn_blocking(move || security.reload()).await;
        }
    }
}

/// Returns the stamps of the files in order; `None` for a file that cannot be examined.
pub(super) fn stamps(paths: &[PathBuf]) -> Vec<Option<FileStamp>> {
    paths.iter().map(|path| stamp(path)).collect()
}

/// Returns the stamp of the file behind a link: secrets are often links that are switched.
fn stamp(path: &Path) -> Option<FileStamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileStamp {
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}
