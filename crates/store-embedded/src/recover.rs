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
    if !turns::path_of(store).exists() {
        return Ok(Vec::new());
    }
    let connection = connect::reader(store)?;
    // A header that cannot be read is reported by whoever needs it.
    let Ok(header) = Header::read_from(&connection) else {
        return Ok(Vec::new());
    };
    let turns = Turns::read(store, &header.identity)?;
    turns
        .behind(header.sequence)
        .map_err(|fault| fault.at(store, "read"))
}
