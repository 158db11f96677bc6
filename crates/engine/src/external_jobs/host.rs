//! What a host asks of external systems beside their calls.

use ganger_types::keys::{KeyKind, KeyUpkeep, UpkeepCounts};
use ganger_types::reply::ExternalJobView;
use ganger_types::{Bytes, ExternalRow, Namespace, Now};

use crate::engine::Engine;
use crate::external::ExternalSystem as _;

impl Engine {
    /// Lists of raw keys that got elements since the last call, for serving those who wait.
    pub fn take_grown(&mut self) -> Vec<(Namespace, Bytes)> {
        self.external.keys.take_grown()
    }

    /// Begins the upkeep of work queues of raw keys; without it none is done.
    pub fn begin_key_upkeep(&mut self, now: Now, settings: KeyUpkeep) {
        self.external.keys.begin_upkeep(now.elapsed, settings);
    }

    /// What the upkeep of raw keys has done since it was begun.
    pub fn key_upkeep_counts(&self) -> UpkeepCounts {
        self.external.keys.upkeep_counts()
    }

    /// What a raw key holds at `now`.
    pub fn kind_of_key(&self, now: Now, namespace: &Namespace, name: &Bytes) -> Option<KeyKind> {
        self.external.keys.kind(now, namespace, name)
    }

    /// The number of a raw key, also of one that has run out and is about to go.
    pub fn number_of_key(&self, namespace: &Namespace, name: &Bytes) -> Option<u64> {
        self.external.keys.number(namespace, name)
    }

    /// Number of namespaces that have jobs or queues of qless.
    pub fn qless_namespaces(&self) -> usize {
        self.external.qless.namespaces().len()
    }

    /// The external job that a row is, as the row says, whatever has become of it since: for a host that has made this row
    /// durable. `None` if the row is no job, or the system has nothing in the namespace.
    pub fn external_job_of_row(&self, row: &ExternalRow) -> Option<ExternalJobView> {
        self.external.qless.job_of_row(row)
    }
}
