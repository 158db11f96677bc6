//! Methods of external systems for the host, besides their calls.

use ganger_types::keys::{KeyKind, KeyUpkeep, UpkeepCounts};
use ganger_types::reply::ExternalJobView;
use ganger_types::{Bytes, ExternalRow, Namespace, Now};

use crate::engine::Engine;
use crate::external::ExternalSystem as _;

impl Engine {
    /// Lists of raw keys that got elements since the last call, to serve clients that wait for them.
    pub fn take_grown(&mut self) -> Vec<(Namespace, Bytes)> {
        self.external.keys.take_grown()
    }

    /// Begins the upkeep of work queues of raw keys.
    pub fn begin_key_upkeep(&mut self, now: Now, settings: KeyUpkeep) {
        self.external.keys.begin_upkeep(now.elapsed, settings);
    }

    /// Counts of the upkeep of raw keys since it began.
    pub fn key_upkeep_counts(&self) -> UpkeepCounts {
        self.external.keys.upkeep_counts()
    }

    /// The type of a raw key's value at `now`; `None` if the key does not exist.
    pub fn kind_of_key(&self, now: Now, namespace: &Namespace, name: &Bytes) -> Option<KeyKind> {
        self.external.keys.kind(now, namespace, name)
    }

    /// The number of a raw key, also if it has expired and is not removed yet.
    pub fn number_of_key(&self, namespace: &Namespace, name: &Bytes) -> Option<u64> {
        self.external.keys.number(namespace, name)
    }

    /// Number of namespaces that have jobs or queues of qless.
    pub fn qless_namespaces(&self) -> usize {
        self.external.qless.namespaces().len()
    }

    /// The external job as of a row, even if it has changed since, for a host that has made this row durable. `None`
    /// if the row is not a job, or the system has no state in the namespace.
    pub fn external_job_of_row(&self, row: &ExternalRow) -> Option<ExternalJobView> {
        self.external.qless.job_of_row(row)
    }
}
