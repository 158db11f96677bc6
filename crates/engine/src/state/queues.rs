//! The queues of all namespaces, and what is to be done about some of them at the end of the turn.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use ganger_types::{Queue, Timestamp};

use super::names::{QueueIndex, SpaceIndex};
use super::space::QueueState;

/// The queues of all namespaces, by index. None is ever removed: jobs refer to them by index.
#[derive(Default)]
pub(crate) struct Queues {
    all: Vec<QueueState>,
    /// Queues whose row is to be written at the end of the turn.
    changed: BTreeSet<QueueIndex>,
    /// Queues in which a job may have become leasable.
    woken: BTreeSet<QueueIndex>,
}

impl Queues {
    /// Adds a queue.
    pub(crate) fn add(&mut self, space: SpaceIndex, name: Queue, at: Timestamp) -> QueueIndex {
        let index = QueueIndex::new(self.all.len());
        self.all.push(QueueState::new(space, name, at));
        index
    }

    /// The indexes of all queues.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = QueueIndex> + use<> {
        (0..self.all.len()).map(QueueIndex::new)
    }

    /// All queues in order of their indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueueState> {
        self.all.iter()
    }

    /// The row of the queue is written at the end of the turn.
    pub(crate) fn mark_changed(&mut self, queue: QueueIndex) {
        self.changed.insert(queue);
    }

    /// The row of the queue is not written at the end of the turn: it was removed.
    pub(crate) fn unmark_changed(&mut self, queue: QueueIndex) {
        self.changed.remove(&queue);
    }

    /// Queues whose rows are to be written.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<QueueIndex> {
        std::mem::take(&mut self.changed)
    }

    /// A job of the queue may have become leasable.
    pub(crate) fn wake(&mut self, queue: QueueIndex) {
        self.woken.insert(queue);
    }

    /// Jobs of any queue may have become leasable.
    pub(crate) fn wake_all(&mut self) {
        self.woken = self.indexes().collect();
    }

    /// Queues in which a job may have become leasable since the last call.
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
