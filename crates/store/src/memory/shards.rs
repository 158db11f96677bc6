//! The rows of the memory store about other shards and of external systems.

use std::collections::BTreeMap;

use ganger_types::{
    Change, Dependent, ExternalRow, ExternalRowKey, Graph, JobKey, Namespace, OutboxRecord, Part,
    PartRecord, PeerRecord, ShardId,
};

use crate::store::Loaded;

/// The key of a submission over several shards.
type Name = (Namespace, Graph);

/// Records about other shards, messages to them, and their waiting jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct ShardRows {
    peers: BTreeMap<ShardId, PeerRecord>,
    outbox: BTreeMap<(ShardId, u64), OutboxRecord>,
    parts: BTreeMap<Name, PartRecord>,
    part_jobs: BTreeMap<Name, Part>,
    dependents: BTreeMap<(JobKey, ShardId, JobKey, u32), Dependent>,
    external: BTreeMap<ExternalRowKey, ExternalRow>,
}

impl ShardRows {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::PutPeer(record) => {
                self.peers.insert(record.shard.clone(), (**record).clone());
            }
            Change::PutOutbox(record) => {
                let key = (record.to.clone(), record.number);
                self.outbox.insert(key, (**record).clone());
            }
            Change::RemoveOutbox(shard, number) => {
                self.outbox.remove(&(shard.clone(), *number));
            }
            Change::PutPart(record) => {
                self.parts.insert(name_of(record), (**record).clone());
            }
            Change::RemovePart(namespace, graph) => {
                let name = (namespace.clone(), graph.clone());
                self.parts.remove(&name);
                self.part_jobs.remove(&name);
            }
            Change::PutPartJobs(part) => {
                self.part_jobs
                    .insert(name_of(&part.record), (**part).clone());
            }
            Change::RemovePartJobs(namespace, graph) => {
                self.part_jobs.remove(&(namespace.clone(), graph.clone()));
            }
            Change::PutDependent(dependency, dependent) => {
                let (shard, key) = (dependent.shard.clone(), dependent.key);
                self.dependents.insert(
                    (*dependency, shard, key, dependent.slot),
                    (**dependent).clone(),
                );
            }
            Change::RemoveDependent(dependency, shard, key, slot) => {
                self.dependents
                    .remove(&(*dependency, shard.clone(), *key, *slot));
            }
            Change::External(change) => {
                match change.row() {
                    Some(row) => self.external.insert(change.key(), row),
                    None => self.external.remove(&change.key()),
                };
            }
            _ => unreachable!("changes of other rows are applied elsewhere"),
        }
    }

    pub(super) fn load(&self, each: &mut dyn FnMut(Loaded)) {
        self.peers
            .values()
            .for_each(|row| each(Loaded::Peer(Box::new(row.clone()))));
        self.outbox
            .values()
            .for_each(|row| each(Loaded::Outbox(Box::new(row.clone()))));
        self.parts
            .values()
            .for_each(|row| each(Loaded::Part(Box::new(row.clone()))));
        for ((dependency, ..), row) in &self.dependents {
            each(Loaded::Dependent(*dependency, Box::new(row.clone())));
        }
        self.external
            .values()
            .for_each(|row| each(Loaded::External(row.clone())));
    }

    /// An undecided part with its jobs.
    pub(super) fn part(&self, namespace: &Namespace, graph: &Graph) -> Option<Part> {
        let name = (namespace.clone(), graph.clone());
        let record = self.parts.get(&name)?.clone();
        let part = self.part_jobs.get(&name)?.clone();
        Some(Part { record, ..part })
    }
}

fn name_of(record: &PartRecord) -> Name {
    (record.namespace.clone(), record.graph.clone())
}
