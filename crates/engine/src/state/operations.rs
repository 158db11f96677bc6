//! The operations of a shard, and the newest records of its audit log.

use std::collections::{BTreeMap, VecDeque};

use ganger_types::{
    AuditRecord, Graph, Namespace, OperationNumber, OperationRecord, OperationState,
};

/// All operations that are kept, by number.
#[derive(Default)]
pub(crate) struct Operations {
    all: BTreeMap<OperationNumber, OperationRecord>,
    /// Graphs that running operations cancel as a whole.
    cancelled_graphs: BTreeMap<(Namespace, Graph), OperationNumber>,
    /// Jobs that were cancelled since the last count, because a job of a graph of [`Self::cancelled_graphs`] ended.
    pub cascaded: BTreeMap<OperationNumber, u64>,
}

impl Operations {
    pub(crate) fn get(&self, number: OperationNumber) -> Option<&OperationRecord> {
        self.all.get(&number)
    }

    pub(crate) fn put(&mut self, record: OperationRecord) {
        self.forget_graph(record.number);
        if record.state == OperationState::Running
            && let Some(graph) = record.cancelled_graph()
        {
            let name = (record.namespace.clone(), graph.clone());
            self.cancelled_graphs.insert(name, record.number);
        }
        self.all.insert(record.number, record);
    }

    pub(crate) fn remove(&mut self, number: OperationNumber) -> Option<OperationRecord> {
        self.forget_graph(number);
        self.all.remove(&number)
    }

    /// Forgets the graph that an operation cancels.
    fn forget_graph(&mut self, number: OperationNumber) {
        let record = self.all.get(&number);
        let graph = record.and_then(OperationRecord::cancelled_graph);
        let name = record.zip(graph);
        let name = name.map(|(record, graph)| (record.namespace.clone(), graph.clone()));
        let Some(name) = name else { return };
        if self.cancelled_graphs.get(&name) != Some(&number) {
            return;
        }
        self.cancelled_graphs.remove(&name);
        let is_same = |record: &&OperationRecord| {
            record.namespace == name.0 && record.cancelled_graph() == Some(&name.1)
        };
        let mut others = self.running().filter(|record| record.number != number);
        let other = others.find(is_same).map(|record| record.number);
        drop(others);
        if let Some(other) = other {
            self.cancelled_graphs.insert(name, other);
        }
    }

    /// Whether no running operation cancels a whole graph.
    pub(crate) fn cancels_no_graph(&self) -> bool {
        self.cancelled_graphs.is_empty()
    }

    /// The running operation that cancels a graph as a whole.
    pub(crate) fn cancelling(
        &self,
        namespace: &Namespace,
        graph: &Graph,
    ) -> Option<&OperationRecord> {
        let name = (namespace.clone(), graph.clone());
        self.get(*self.cancelled_graphs.get(&name)?)
    }

    /// The graphs that running operations cancel, with the operations.
    pub(crate) fn cancelled_graphs(&self) -> &BTreeMap<(Namespace, Graph), OperationNumber> {
        &self.cancelled_graphs
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// In order of their numbers.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &OperationRecord> {
        self.all.values()
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &OperationRecord> {
        self.iter()
            .filter(|record| record.state == OperationState::Running)
    }

    /// The number of the next operation. The operation with the largest number is never removed, so that no number is
    /// used twice.
    pub(crate) fn next_number(&self) -> OperationNumber {
        OperationNumber(self.newest().map_or(1, |newest| newest.number.0 + 1))
    }

    pub(crate) fn newest(&self) -> Option<&OperationRecord> {
        self.all.last_key_value().map(|(_, record)| record)
    }

    pub(crate) fn is_newest(&self, number: OperationNumber) -> bool {
        self.newest().is_some_and(|newest| newest.number == number)
    }
}

/// The newest records of the audit log, oldest first.
#[derive(Default)]
pub(crate) struct AuditLog {
    pub records: VecDeque<AuditRecord>,
}

impl AuditLog {
    pub(crate) fn next_number(&self) -> u64 {
        self.records.back().map_or(1, |last| last.number + 1)
    }
}
