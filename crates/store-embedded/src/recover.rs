//! Decides whether a store can be recovered completely after a crash.

use std::path::Path;

use ganger_store::StoreError;
use ganger_types::Commit;

use crate::meta::Header;
use crate::turns::TurnLogContent;
use crate::{connect, wal};

/// Refuses a store that lacks something acknowledged, before anything in it is changed.
///
/// The write-ahead log may have holes without being damaged: commits from the turn log are not flushed there, and
/// when the power fails, later pages may reach the disk before earlier ones. So it is damaged only if the turn log
/// does not have everything that was lost.
///
/// Returns a description of what is doubtful, if anything is.
pub(crate) fn inspect(store: &Path) -> Result<Option<String>, StoreError> {
    let rest = rest(store)?;
    match wal::inspect(store) {
        Err(StoreError::Damaged { .. }) if !rest.commits.is_empty() => {}
        other => other?,
    }
    Ok(rest.doubt)
}

/// What follows the tables in the turn log.
#[derive(Default)]
pub(crate) struct UnappliedTurns {
    pub(crate) commits: Vec<Commit>,
    /// Description of a commit that may have been acknowledged and is missing; `None` if there is none.
    pub(crate) doubt: Option<String>,
    /// Whether the missing commit is certainly damage and not the end of an interrupted write.
    pub(crate) is_damage: bool,
}

/// What follows the tables in the turn log.
///
/// # Errors
/// If an acknowledged commit is missing, as far as that can be determined.
pub(crate) fn rest(store: &Path) -> Result<UnappliedTurns, StoreError> {
    // A header that cannot be read is reported by the function that needs it. The store cannot be in the middle of an
    // upgrade, which only a writing connection can roll back; a store of an older format has no turn log.
    let header = connect::reader(store).and_then(|connection| {
        let header = Header::read_from(&connection);
        header.map_err(|fault| fault.at(store, "read"))
    });
    let Ok(header) = header else {
        return Ok(UnappliedTurns::default());
    };
    let turns = TurnLogContent::read(store, &header)?;
    if header.log.exists()
        && let Some(log) = turns.missing()
    {
        return Err(StoreError::Damaged {
            path: store.display().to_string(),
            what: format!(
                "its turn log {} is missing, which may have what was acknowledged last: put it back; if it is lost \
                 for good, put an empty file in its place",
                log.display()
            ),
        });
    }
    let commits = turns.commits_after(header.sequence);
    let commits = commits.map_err(|fault| fault.at(store, "read"))?;
    let damaged = |what| StoreError::Damaged {
        path: store.display().to_string(),
        what,
    };
    let mut rest = UnappliedTurns {
        commits,
        ..UnappliedTurns::default()
    };
    if header.log.exists()
        && let Some(cut) = turns.cut()
    {
        if !turns.is_discarded() {
            let advice =
                "put all of it back; if it is lost for good, put an empty file in its place";
            return Err(damaged(format!("{cut}: {advice}")));
        }
        rest.doubt = Some(cut);
        rest.is_damage = true;
    }
    if let Some(broken) = turns.damaged_end(header.sequence) {
        let what = turns.describe(broken);
        if !broken.may_be_torn() {
            return Err(damaged(what));
        }
        rest.doubt = Some(what);
    }
    Ok(rest)
}
