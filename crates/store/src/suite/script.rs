//! A store under test, with the state that commits to it need.

use std::sync::Arc;

use ganger_types::{Change, Commit, Epoch, JobKey, JobRecord, Meta};

use super::StoreFixture;
use super::sample::MORNING;
use crate::error::CommitError;
use crate::store::{Loaded, Opened, Store};

/// An open store, with the epoch and sequence of its commits.
pub struct Script<'g, G: StoreFixture> {
    fixture: &'g mut G,
    store: Option<G::Store>,
    /// Epoch of the last opening.
    pub epoch: Epoch,
    /// Sequence of the last commit.
    pub sequence: u64,
}

impl<'g, G: StoreFixture> Script<'g, G> {
    /// Opens a new store.
    pub fn start(fixture: &'g mut G) -> Self {
        let mut store = fixture.fresh();
        let opened = store.open().expect("a new store opens");
        Self {
            fixture,
            store: Some(store),
            epoch: opened.epoch,
            sequence: opened.sequence,
        }
    }

    /// Returns the store under test.
    pub fn store(&mut self) -> &mut G::Store {
        self.store
            .as_mut()
            .expect("the store is there between crashes")
    }

    /// Returns a reader of the store.
    pub fn reader(&mut self) -> <G::Store as Store>::Reader {
        self.store().reader().expect("a reader opens")
    }

    /// A commit with the next sequence.
    pub fn commit(&self, changes: Vec<Change>) -> Arc<Commit> {
        let next_key = changes
            .iter()
            .filter_map(key_of)
            .max()
            .map_or(JobKey(0), |k| JobKey(k.0 + 1));
        let meta = Meta {
            next_key,
            next_order: 5,
            wall: MORNING,
            ..Meta::default()
        };
        Arc::new(Commit {
            epoch: self.epoch,
            sequence: self.sequence + 1,
            meta,
            changes,
        })
    }

    /// Commits `changes`.
    ///
    /// # Panics
    /// If they are refused.
    pub fn put(&mut self, changes: Vec<Change>) {
        self.try_put(changes).expect("the commit is accepted");
    }

    /// Commits `changes` if the store accepts them.
    ///
    /// # Errors
    /// Those of the store.
    pub fn try_put(&mut self, changes: Vec<Change>) -> Result<(), CommitError> {
        let commit = self.commit(changes);
        self.store().commit(&commit)?;
        self.sequence = commit.sequence;
        Ok(())
    }

    /// Drops the store without closing it, and opens it again.
    pub fn crash(&mut self) -> Opened {
        let store = self
            .store
            .take()
            .expect("the store is there between crashes");
        let mut store = self.fixture.again(store);
        let opened = store.open().expect("the store opens again");
        self.store = Some(store);
        (self.epoch, self.sequence) = (opened.epoch, opened.sequence);
        opened
    }

    /// The rows that the store loads.
    pub fn loaded(&mut self) -> Vec<Loaded> {
        let mut rows = Vec::new();
        self.store()
            .load(&mut |row| rows.push(row))
            .expect("the store loads");
        rows
    }

    /// The live jobs among them.
    pub fn live(&mut self) -> Vec<JobRecord> {
        let jobs = self.loaded().into_iter();
        jobs.filter_map(|row| {
            if let Loaded::Job(job) = row {
                Some(*job)
            } else {
                None
            }
        })
        .collect()
    }
}

fn key_of(change: &Change) -> Option<JobKey> {
    match change {
        Change::PutJob(record) | Change::PutFinished(record) | Change::FinishJob { record, .. } => {
            Some(record.key)
        }
        _ => None,
    }
}

/// Returns a `PutJob` change for `record`.
pub(super) fn put(record: &JobRecord) -> Change {
    Change::PutJob(Box::new(record.clone()))
}

/// Returns a `FinishJob` change for `record`, without a result.
pub(super) fn finish(record: &JobRecord) -> Change {
    Change::FinishJob {
        record: Box::new(record.clone()),
        result: None,
    }
}
