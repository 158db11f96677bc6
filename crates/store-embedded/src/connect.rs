//! Connections to the database, and what they are told before anything else.

use std::path::Path;
use std::time::Duration;

use ganger_store::StoreError;
use rusqlite::{Connection, OpenFlags};

use crate::fault::{Fault, io};
use crate::schema::{APPLICATION_ID, FORMAT, version_of};

/// Before 3.51.3 a write racing a checkpoint could lose committed data.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// Below the file's growth by a checkpoint, above what a shard's hot pages take.
const WRITER_CACHE_KIB: i64 = 65_536;
const READER_CACHE_KIB: i64 = 8_192;
/// Waits only for recovery or a checkpoint of another connection, which are short.
const BUSY_FOR: Duration = Duration::from_secs(10);
/// More than there are statements, so that none is ever prepared twice.
const STATEMENTS_MAX: usize = 96;

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let version = rusqlite::version_number();
    if version < SQLITE_VERSION_MIN {
        let reason = format!(
            "SQLite {} can lose committed data, 3.51.3 or newer is needed: build with the bundled one",
            rusqlite::version()
        );
        return Err(io(path, "opened", reason));
    }
    let opened = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let connection = opened.map_err(|error| Fault::from(error).at(path, "opened"))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection
        .busy_timeout(BUSY_FOR)
        .map_err(|error| Fault::from(error).at(path, "opened"))?;
    Ok(connection)
}

/// The one connection that writes. SQLite's own checkpoints are off: the store makes them.
pub(crate) fn writer(path: &Path) -> Result<Connection, StoreError> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let set = || {
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "cell_size_check", true)
    };
    set().map_err(|error| Fault::from(error).at(path, "opened"))?;
    Ok(connection)
}

/// A connection that cannot write.
pub(crate) fn reader(path: &Path) -> Result<Connection, StoreError> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let set = || {
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
        connection.pragma_update(None, "cell_size_check", true)
    };
    set().map_err(|error| Fault::from(error).at(path, "opened"))?;
    Ok(connection)
}

/// Looks at a file without touching it or its log: whether it is a store, and of which version.
/// The version is always in the file itself, since it is checkpointed whenever that changes.
pub(crate) fn inspect(path: &Path) -> Result<(), StoreError> {
    let damaged = |what: &str| StoreError::Damaged {
        path: path.display().to_string(),
        what: what.to_owned(),
    };
    let uri = format!("file:{}?immutable=1", escape(path));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = connect(Path::new(&uri), flags)?;
    let read = || -> Result<(i64, u32), Fault> {
        let id = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        Ok((id, version_of(&connection)?))
    };
    let (id, version) = read().map_err(|fault| fault.at(path, "read"))?;
    if id != APPLICATION_ID {
        return Err(damaged(
            "it is not a store of ganger, or its first page is lost",
        ));
    }
    if version > FORMAT {
        let path = path.display().to_string();
        return Err(StoreError::TooNew {
            path,
            found: version,
            known: FORMAT,
        });
    }
    Ok(())
}

/// A path as SQLite's URIs want it.
fn escape(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let bytes = path.as_os_str().as_bytes().iter();
    bytes
        .map(|byte| {
            if plain(*byte) {
                char::from(*byte).to_string()
            } else {
                format!("%{byte:02x}")
            }
        })
        .collect()
}
