//! The operations of a shard, and the newest records of its audit log.

use std::collections::{BTreeMap, VecDeque};

use ganger_types::{AuditRecord, OperationNumber, OperationRecord, OperationState};

/// All operations that are kept, by number.
#[derive(Default)]
pub(crate) struct Operations {
    all: BTreeMap<OperationNumber, OperationRecord>,
}

impl Operations {
    pub(crate) fn get(&self, number: OperationNumber) -> Option<&OperationRecord> {
        self.all.get(&number)
    }

    pub(crate) fn put(&mut self, record: OperationRecord) {
        self.all.insert(record.number, record);
    }

    pub(crate) fn remove(&mut self, number: OperationNumber) -> Option<OperationRecord> {
        self.all.remove(&number)
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
