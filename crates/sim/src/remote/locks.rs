//! Locks of a server: on rows of the fence, on tables and on keys that are being inserted.

use std::collections::BTreeMap;

use ganger_store_postgres::rules::FenceRow;

/// What a statement locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    /// The row of the fence that commits lock.
    FenceLog,
    /// The row of the fence that is locked while rows are written.
    FenceRows,
    /// The row that says how far the rows go.
    Checkpoint,
    /// A log table as a whole, by its number.
    Slot(usize),
    /// A sequence that is being inserted into a log table.
    Key(usize, u64),
}

impl From<FenceRow> for Resource {
    fn from(row: FenceRow) -> Self {
        match row {
            FenceRow::Log => Self::FenceLog,
            FenceRow::Rows => Self::FenceRows,
        }
    }
}

/// How it is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Beside others that share it.
    Shared,
    /// Against every lock of another session.
    Exclusive,
}

/// The locks that are held.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: BTreeMap<Resource, Vec<(u64, Mode)>>,
}

impl Locks {
    /// Takes a lock for a session until its transaction ends; false if another session is in the way.
    pub(crate) fn take(&mut self, session: u64, resource: Resource, mode: Mode) -> bool {
        let holders = self.held.entry(resource).or_default();
        let mut others = holders.iter().filter(|(holder, _)| *holder != session);
        let is_in_the_way = match mode {
            Mode::Shared => others.any(|(_, held)| *held == Mode::Exclusive),
            Mode::Exclusive => others.next().is_some(),
        };
        if !is_in_the_way {
            holders.push((session, mode));
        }
        !is_in_the_way
    }

    /// Releases everything that a session holds.
    pub(crate) fn release(&mut self, session: u64) {
        for holders in self.held.values_mut() {
            holders.retain(|(holder, _)| *holder != session);
        }
        self.held.retain(|_, holders| !holders.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_shared_or_belongs_to_one_session() {
        let mut locks = Locks::default();
        let fence = Resource::FenceLog;
        assert!(locks.take(1, fence, Mode::Shared));
        assert!(locks.take(2, fence, Mode::Shared));
        assert!(!locks.take(3, fence, Mode::Exclusive));
        locks.release(1);
        assert!(!locks.take(3, fence, Mode::Exclusive));
        locks.release(2);
        assert!(locks.take(3, fence, Mode::Exclusive));
        assert!(locks.take(3, fence, Mode::Exclusive), "it is its own");
        assert!(!locks.take(1, fence, Mode::Shared));
        assert!(locks.take(1, Resource::FenceRows, Mode::Shared));
    }
}
