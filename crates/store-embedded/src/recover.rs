//! Whether what a crash has left can be made whole again.

use std::path::Path;

use ganger_store::StoreError;
use ganger_types::Commit;

use crate::meta::Header;
use crate::turns::{self, Turns};
use crate::{connect, wal};

/// Refuses a store of which something is missing that was acknowledged, before anything of it is changed.
///
/// The log of the tables may have holes without being damaged: what comes from the turn log is not flushed there,
/// and when the power goes, later pages may have reached the disk before earlier ones. So it is damaged only if the
/// turn log has not all of what is lost by that.
pub(crate) fn inspect(store: &Path) -> Result<(), StoreError> {
    let rest = rest(store)?;
    match wal::inspect(store) {
        Err(StoreError::Damaged { .. }) if !rest.is_empty() => Ok(()),
        other => other,
    }
}

/// What follows the tables in the turn log.
pub(crate) fn rest(store: &Path) -> Result<Vec<Commit>, StoreError> {
    // A header that cannot be read is reported by whoever needs it. It cannot be in the middle of an upgrade, which only
    // a connection that writes can undo; a store of an older format has no turn log.
    let header = connect::reader(store).and_then(|connection| {
        let header = Header::read_from(&connection);
        header.map_err(|fault| fault.at(store, "read"))
    });
    let Ok(header) = header else {
        return Ok(Vec::new());
    };
    let log = turns::path_of(store);
    if header.has_turns && !log.exists() {
        return Err(StoreError::Damaged {
            path: store.display().to_string(),
            what: format!(
                "its turn log {} is missing, which may have what was acknowledged last: put it back; if it is lost \
                 for good, put an empty file in its place",
                log.display()
            ),
        });
    }
    let turns = Turns::read(store, &header.identity)?;
    turns
        .behind(header.sequence)
        .map_err(|fault| fault.at(store, "read"))
}
