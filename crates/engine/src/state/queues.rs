//! The queues of all namespaces, and which of them changed in the turn.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use ganger_types::{Queue, Timestamp};

use super::names::{QueueIndex, SpaceIndex};
use super::space::QueueState;

/// The queues of all namespaces, by index. None is ever removed, because jobs refer to them by index.
#[derive(Default)]
pub(crate) struct Queues {
    all: Vec<QueueState>,
    /// Queues whose row must be written at the end of the turn.
    changed: BTreeSet<QueueIndex>,
    /// Queues in which a job may have become leasable.
    woken: BTreeSet<QueueIndex>,
}

impl Queues {
    /// Adds a queue and returns its index.
    pub(crate) fn add(&mut self, space: SpaceIndex, name: Queue, at: Timestamp) -> QueueIndex {
        let index = QueueIndex::new(self.all.len());
        self.all.push(QueueState::new(space, name, at));
        index
    }

    /// The indexes of all queues.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = QueueIndex> + use<> {
        (0..self.all.len()).map(QueueIndex::new)
    }

    /// All queues, in order of their indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueueState> {
        self.all.iter()
    }

    /// Marks a queue whose row must be written at the end of the turn.
    pub(crate) fn mark_changed(&mut self, queue: QueueIndex) {
        self.changed.insert(queue);
    }

    /// Unmarks a queue whose row was removed.
    pub(crate) fn unmark_changed(&mut self, queue: QueueIndex) {
        self.changed.remove(&queue);
    }

    /// The marked queues; unmarks them.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<QueueIndex> {
        std::mem::take(&mut self.changed)
    }

    /// Records that a job of the queue may have become leasable.
    pub(crate) fn wake(&mut self, queue: QueueIndex) {
        self.woken.insert(queue);
    }

    /// Records that jobs of any queue may have become leasable.
    pub(crate) fn wake_all(&mut self) {
        self.woken = self.indexes().collect();
    }

    /// The queues in which a job may have become leasable since the last call.
    pub(crate) fn take_woken(&mut self) -> BTreeSet<QueueIndex> {
        std::mem::take(&mut self.woken)
    }
}

impl Index<QueueIndex> for Queues {
    type Output = QueueState;

    fn index(&self, queue: QueueIndex) -> &QueueState {
        &self.all[queue.at()]
    }
}

impl IndexMut<QueueIndex> for Queues {
    fn index_mut(&mut self, queue: QueueIndex) -> &mut QueueState {
        &mut self.all[queue.at()]
    }
}
