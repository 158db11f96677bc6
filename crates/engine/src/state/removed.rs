//! Finished jobs that were removed in recent turns.

use std::collections::BTreeMap;

use ganger_types::JobKey;

/// Turns for which removed jobs are remembered: more than a host ever has in flight.
const REMOVED_TURNS: u64 = 256;

/// Finished jobs that were removed in recent turns. A host that read them before may still name them.
#[derive(Default)]
pub(crate) struct RemovedJobs {
    /// The turn in which each was removed.
    removed: BTreeMap<JobKey, u64>,
    /// Number of turns that have ended.
    turns: u64,
}

impl RemovedJobs {
    /// Remembers a job that was just removed.
    pub(crate) fn add(&mut self, key: JobKey) {
        self.removed.insert(key, self.turns);
    }

    /// Whether this job was removed in a recent turn.
    pub(crate) fn contains(&self, key: JobKey) -> bool {
        self.removed.contains_key(&key)
    }

    /// Ends a turn and forgets the jobs that no host can name any more.
    pub(crate) fn end_turn(&mut self) {
        self.turns += 1;
        while let Some(entry) = self.removed.first_entry() {
            if *entry.get() + REMOVED_TURNS > self.turns {
                break;
            }
            entry.remove();
        }
    }
}
