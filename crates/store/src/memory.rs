//! The memory store, for tests and the simulator: nothing outlives the process.

mod lists;
mod reader;
mod rows;
mod shards;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ganger_types::{Commit, Epoch, Meta};

use crate::error::{CommitError, StoreError};
use crate::store::{Loaded, Opened, Store};

pub use reader::MemoryReader;
use rows::Rows;

/// A store in memory. Clones share the rows, so a test can drop one like a crash and open another.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

/// The state that survives a simulated crash.
#[derive(Clone, Debug, Default)]
struct State {
    epoch: Epoch,
    sequence: u64,
    meta: Meta,
    rows: Rows,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // No code here panics while it holds the lock; a test that did has failed already.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A separate store with the same content: a backup as of the last commit.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            state: Arc::new(Mutex::new(lock(&self.state).clone())),
        }
    }

    /// Raises the epoch to this one, for a copy that takes the commits of another store's owners.
    pub fn raise_epoch(&self, epoch: Epoch) {
        let mut state = lock(&self.state);
        state.epoch = state.epoch.max(epoch);
    }

    /// The sequence of the last commit.
    pub fn sequence(&self) -> u64 {
        lock(&self.state).sequence
    }
}

impl Store for MemoryStore {
    type Reader = MemoryReader;

    fn open(&mut self) -> Result<Opened, StoreError> {
        let mut state = lock(&self.state);
        state.epoch.0 += 1;
        Ok(Opened {
            epoch: state.epoch,
            sequence: state.sequence,
            meta: state.meta,
            away: None,
        })
    }

    fn take_back(&mut self, ours: Epoch) -> Result<Opened, StoreError> {
        let theirs = lock(&self.state).epoch;
        if theirs != ours {
            return Err(StoreError::Fenced {
                path: "in memory".to_owned(),
                ours,
                theirs,
            });
        }
        self.open()
    }

    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        let state = lock(&self.state);
        state.rows.load(state.meta.wall, each);
        Ok(())
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        let mut state = lock(&self.state);
        if commit.epoch != state.epoch {
            return Err(CommitError::Fenced {
                ours: commit.epoch,
                theirs: state.epoch,
            });
        }
        if commit.sequence != state.sequence + 1 {
            return Err(CommitError::NotApplied {
                reason: format!(
                    "commit {} does not follow {}, the last one",
                    commit.sequence, state.sequence
                ),
                is_full: false,
            });
        }
        commit
            .changes
            .iter()
            .for_each(|change| state.rows.apply(change));
        state.sequence = commit.sequence;
        state.meta = commit.meta;
        Ok(())
    }

    fn reader(&self) -> Result<MemoryReader, StoreError> {
        Ok(MemoryReader::new(Arc::clone(&self.state)))
    }
}
