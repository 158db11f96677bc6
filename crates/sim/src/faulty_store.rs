//! The store of the simulated shard: a memory store whose next commit may fail.

use std::sync::Arc;

use ganger_store::memory::MemoryReader;
use ganger_store::{CommitError, Loaded, MemoryStore, Opened, Store, StoreError};
use ganger_types::{Commit, Epoch};

use crate::planted::PlantedBug;

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CommitOutcome {
    /// The commit succeeds and is written.
    #[default]
    Success,
    /// The commit fails and nothing is written.
    Refused,
    /// The commit fails for lack of space and nothing is written.
    Full,
    /// The commit is written, and the answer is lost.
    UnknownApplied,
    /// The commit is not written, and the answer is lost.
    UnknownLost,
    /// Another process has opened the store.
    Fenced,
    /// A planted bug: the commit is acknowledged and not written.
    Lost,
    /// A planted bug: the commit is acknowledged, and only the first half of its changes is written.
    Half,
}

/// A memory store with faults. Clones of the inner store share the rows.
pub(crate) struct FaultyStore {
    inner: MemoryStore,
    /// Outcome of the next commit.
    pub(crate) next_outcome: CommitOutcome,
    planted: PlantedBug,
    /// Last epoch of the inner store.
    epoch: Epoch,
}

impl FaultyStore {
    pub(crate) fn new(inner: MemoryStore, planted: PlantedBug) -> Self {
        Self {
            inner,
            next_outcome: CommitOutcome::Success,
            planted,
            epoch: Epoch::default(),
        }
    }

    fn unknown(&self, reason: &str) -> CommitError {
        if self.planted.is(25) {
            return CommitError::NotApplied {
                reason: reason.to_owned(),
                is_full: false,
            };
        }
        CommitError::Unknown(reason.to_owned())
    }
}

impl Store for FaultyStore {
    type Reader = MemoryReader;

    fn open(&mut self) -> Result<Opened, StoreError> {
        let mut opened = self.inner.open()?;
        self.epoch = opened.epoch;
        if self.planted.is(2) {
            opened.epoch = Epoch(1);
        }
        Ok(opened)
    }

    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        let planted = &mut self.planted;
        self.inner.load(&mut |row| {
            if let Some(row) = planted.loads(row) {
                each(row);
            }
        })
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        let refused = |is_full| CommitError::NotApplied {
            reason: "the device refuses".to_owned(),
            is_full,
        };
        let mut commit = Arc::clone(commit);
        if self.planted.is(2) {
            Arc::make_mut(&mut commit).epoch = self.epoch;
        }
        let commit = &commit;
        match std::mem::take(&mut self.next_outcome) {
            CommitOutcome::Success => self.inner.commit(commit),
            CommitOutcome::Refused => Err(refused(false)),
            CommitOutcome::Full => Err(refused(true)),
            CommitOutcome::UnknownApplied => {
                self.inner.commit(commit)?;
                Err(self.unknown("the answer was lost"))
            }
            CommitOutcome::UnknownLost => Err(self.unknown("the write was lost")),
            CommitOutcome::Fenced => {
                let other = self.inner.clone().open();
                other.map_err(|error| CommitError::Unknown(error.to_string()))?;
                self.inner.commit(commit)
            }
            CommitOutcome::Lost => Ok(()),
            CommitOutcome::Half => {
                let mut half = Commit::clone(commit);
                half.changes.truncate(commit.changes.len() / 2);
                self.inner.commit(&Arc::new(half))
            }
        }
    }

    fn reader(&self) -> Result<MemoryReader, StoreError> {
        self.inner.reader()
    }
}
