//! Creates and upgrades stores so that a half-made store is never used.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ganger_store::StoreError;
use ganger_types::ShardId;
use rusqlite::Connection;

use crate::connect;
use crate::fault::{Fault, io};
use crate::meta::Header;
use crate::schema::{self, APPLICATION_ID};

/// Size of a page of a new store. Rows are written behind the log, merged over many commits, so that most pages are
/// filled at once; each page costs two system calls in the write-ahead log. An existing store keeps its size.
const PAGE_BYTES: i64 = 4_096;

/// Returns `path` with `suffix` appended to its file name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the directory of a file.
fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Flushes the directory of a file, so that created, renamed or removed names in it are durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), StoreError> {
    let dir = parent(path);
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| io(dir, "flushed", error))
}

/// Creates the missing directories above `path`, accessible to their owner only.
pub(crate) fn make_parent(path: &Path) -> Result<(), StoreError> {
    let dir = parent(path);
    if dir.is_dir() {
        return Ok(());
    }
    make_parent(dir)?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => sync_parent(dir),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io(dir, "created", error)),
    }
}

/// Opens a file, or creates it, readable and writable by its owner only.
pub(crate) fn open_own(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options.open(path)
}

/// Creates an empty file, accessible to its owner only; fails if it exists.
pub(crate) fn create_exclusively(path: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options
        .open(path)
        .map(drop)
        .map_err(|error| io(path, "created", error))
}

/// Removes a database file and the files that SQLite may have left beside it.
pub(crate) fn remove_with_logs(path: &Path) -> Result<(), StoreError> {
    remove(path)?;
    remove_logs(path)
}

/// Removes the files that SQLite may have left beside a database that no connection uses.
pub(crate) fn remove_logs(path: &Path) -> Result<(), StoreError> {
    ["-wal", "-shm", "-journal"]
        .iter()
        .try_for_each(|suffix| remove(&beside(path, suffix)))
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io(path, "removed", error))
        }
        _ => Ok(()),
    }
}

/// Creates the store under a temporary name, flushes it, and then renames it.
pub(crate) fn create(path: &Path, shard: &ShardId) -> Result<(), StoreError> {
    let orphan = beside(path, "-wal");
    if orphan.exists() {
        let path = path.display().to_string();
        let what = format!(
            "the file itself is missing but its log {} is there: put the file back, or move the log away",
            orphan.display()
        );
        return Err(StoreError::Damaged { path, what });
    }
    let new = beside(path, ".new");
    remove_with_logs(&new)?;
    create_exclusively(&new)?;
    fill(&new, shard).map_err(|fault| fault.at(path, "created"))?;
    let flushed = File::open(&new).and_then(|file| file.sync_all());
    flushed.map_err(|error| io(&new, "flushed", error))?;
    fs::rename(&new, path).map_err(|error| io(path, "created", error))?;
    sync_parent(path)
}

fn fill(path: &Path, shard: &ShardId) -> Result<(), Fault> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    schema::migrate(&mut connection)?;
    Header::create(&connection, shard)?;
    // This setting is stored in the file: from now on every connection uses the write-ahead log.
    set_journal(&connection, "wal")?;
    connection.close().map_err(|(_, error)| Fault::Sql(error))
}

/// Upgrades an older store to today's tables.
///
/// Meanwhile SQLite uses a rollback journal instead of the write-ahead log, so that tables and version change in the
/// file itself and atomically. An older program reads only the file: it finds a version that it knows, or one that it
/// refuses, and never relies on a version that the log has already changed (`rel D14`).
pub(crate) fn upgrade(path: &Path) -> Result<(), StoreError> {
    let mut connection = connect::writer(path)?;
    let version = schema::version_of(&connection).map_err(|fault| fault.at(path, "read"))?;
    let upgraded = if version < schema::FORMAT {
        set_journal(&connection, "delete").and_then(|()| schema::migrate(&mut connection))
    } else {
        Ok(())
    };
    // This runs even if the upgrade failed, or was killed before it got here.
    let has_log = set_journal(&connection, "wal");
    upgraded
        .and(has_log)
        .map_err(|fault| fault.at(path, "upgraded"))
}

fn set_journal(connection: &Connection, mode: &str) -> Result<(), Fault> {
    let set: String =
        connection.pragma_update_and_check(None, "journal_mode", mode, |row| row.get(0))?;
    if set == mode {
        return Ok(());
    }
    Err(Fault::Inconsistent(format!(
        "its journal cannot be switched from {set} to {mode}"
    )))
}
