//! The shards of this process, which may change while it runs.

use std::sync::{Arc, PoisonError, RwLock};

use ganger_types::ShardId;

use crate::Handle;

/// The shards of this process, as they are at the moment. Cheap to clone; all clones show the same.
#[derive(Clone)]
pub struct ShardSet(Arc<Inner>);

struct Inner {
    shards: RwLock<Arc<[Handle]>>,
    /// The handle that stands for the first shard while there is none.
    vacant: Option<Handle>,
}

impl From<Vec<Handle>> for ShardSet {
    /// A set with at least one shard.
    fn from(shards: Vec<Handle>) -> Self {
        Self(Arc::new(Inner {
            shards: RwLock::new(shards.into()),
            vacant: None,
        }))
    }
}

impl ShardSet {
    /// Makes a set that has no shard yet. `vacant`: see [`Handle::vacant`].
    pub fn empty(vacant: Handle) -> Self {
        Self(Arc::new(Inner {
            shards: RwLock::new(Arc::new([])),
            vacant: Some(vacant),
        }))
    }

    /// Returns the shards of this moment.
    pub fn now(&self) -> Arc<[Handle]> {
        let shards = self.0.shards.read();
        Arc::clone(&shards.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a shard; `None` if it is not here.
    pub fn get(&self, shard: &ShardId) -> Option<Handle> {
        let shards = self.now();
        shards.iter().find(|handle| handle.id() == shard).cloned()
    }

    /// Returns the first shard, or the vacant one while there is none.
    ///
    /// # Panics
    /// If the set was made of no shards.
    pub fn first(&self) -> Handle {
        let first = self.now().first().cloned();
        let first = first.or_else(|| self.0.vacant.clone());
        first.expect("a server has a shard")
    }

    /// Adds a shard, in place of one with the same id.
    pub fn put(&self, handle: Handle) {
        self.change(|shards| {
            shards.retain(|other| other.id() != handle.id());
            shards.push(handle);
        });
    }

    /// Removes a shard; returns it, if it was here.
    pub fn remove(&self, shard: &ShardId) -> Option<Handle> {
        let removed = self.get(shard);
        self.change(|shards| shards.retain(|handle| handle.id() != shard));
        removed
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Handle>)) {
        let shards = self.0.shards.write();
        let mut shards = shards.unwrap_or_else(PoisonError::into_inner);
        let mut changed = shards.to_vec();
        change(&mut changed);
        *shards = changed.into();
    }
}
