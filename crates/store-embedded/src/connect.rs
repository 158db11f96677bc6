//! Opens connections to the database and configures them.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use ganger_store::StoreError;
use rusqlite::{Connection, OpenFlags};

use crate::fault::{Fault, io};
use crate::schema::{APPLICATION_ID, FORMAT};

/// Oldest accepted version of SQLite: before 3.51.3 a write racing a checkpoint could lose committed data.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// Page cache of the writer: more than a shard's hot pages and its largest usual commit need. A larger cache costs
/// time too: SQLite scans the whole cache at the end of a commit that has reordered pages of a tree.
const WRITER_CACHE_KIB: i64 = 16_384;
const READER_CACHE_KIB: i64 = 8_192;
/// Page cache while everything is read once and in order, when caching does not help.
const LOAD_CACHE_KIB: i64 = 2_048;
/// Time to wait for recovery or a checkpoint of another connection, both of which are short.
const BUSY_FOR: Duration = Duration::from_secs(10);
/// Capacity of the statement cache: more than the number of statements, so that none is prepared twice.
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

/// Opens the only connection that writes. SQLite's automatic checkpoints are off: the store runs them.
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

/// Runs `read`, which reads everything once, with a small cache, so that it does not fill the writer's cache.
pub(crate) fn reading_once<T>(
    connection: &Connection,
    read: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    connection.pragma_update(None, "cache_size", -LOAD_CACHE_KIB)?;
    let found = read();
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    found
}

/// Opens a connection that cannot write.
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

/// First bytes of every SQLite database. The offsets of the header fields are in
/// <https://www.sqlite.org/fileformat2.html#the_database_header>.
const MAGIC: &[u8] = b"SQLite format 3\0";
const VERSION_AT: usize = 60;
const APPLICATION_AT: usize = 68;
const HEADER_BYTES: usize = 100;

/// Checks that a file is a store of a known version, without changing it or its log.
///
/// The version is always in the file itself, since every change of it is checkpointed. Only the first bytes are read:
/// an upgrade that was killed leaves inconsistent pages until SQLite rolls back its journal (`rel D14`). Nothing is
/// rolled back in a store that this program does not know.
pub(crate) fn inspect(path: &Path) -> Result<(), StoreError> {
    let no_store = || StoreError::NotAStore {
        path: path.display().to_string(),
    };
    let mut header = [0; HEADER_BYTES];
    match File::open(path).and_then(|mut file| file.read_exact(&mut header)) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(no_store()),
        other => other.map_err(|error| io(path, "read", error))?,
    }
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if !header.starts_with(MAGIC) || i64::from(word(APPLICATION_AT)) != APPLICATION_ID {
        return Err(no_store());
    }
    let version = word(VERSION_AT);
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
