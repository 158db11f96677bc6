//! The rows of the memory store that are about other shards, of raw keys, and of qless.

use std::collections::BTreeMap;

use ganger_types::{
    Change, Dependent, ElementRecord, Graph, JobKey, KeyRecord, Namespace, OutboxRecord, Part,
    PartRecord, PeerRecord, QlessKey, QlessRow, ShardId,
};

use crate::store::Loaded;

/// A submission over several shards.
type Name = (Namespace, Graph);

/// What is known of other shards, said to them, and waited for by them.
#[derive(Clone, Debug, Default)]
pub(super) struct ShardRows {
    peers: BTreeMap<ShardId, PeerRecord>,
    outbox: BTreeMap<(ShardId, u64), OutboxRecord>,
    parts: BTreeMap<Name, PartRecord>,
    part_jobs: BTreeMap<Name, Part>,
    dependents: BTreeMap<(JobKey, ShardId, JobKey, u32), Dependent>,
    keys: BTreeMap<u64, KeyRecord>,
    elements: BTreeMap<(u64, i64), ElementRecord>,
    qless: BTreeMap<(Namespace, QlessKey), QlessRow>,
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
            Change::PutKey(record) => {
                self.keys.insert(record.number, (**record).clone());
            }
            Change::RemoveKey(number) => {
                self.keys.remove(number);
            }
            Change::PutElement(record) => {
                let place = (record.list, record.place);
                self.elements.insert(place, (**record).clone());
            }
            Change::RemoveElement(list, place) => {
                self.elements.remove(&(*list, *place));
            }
            Change::PutQless(namespace, row) => {
                let name = (namespace.clone(), row.key());
                self.qless.insert(name, (**row).clone());
            }
            Change::RemoveQless(namespace, key) => {
                self.qless.remove(&(namespace.clone(), key.clone()));
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
        self.keys
            .values()
            .for_each(|row| each(Loaded::Key(Box::new(row.clone()))));
        self.elements
            .values()
            .for_each(|row| each(Loaded::Element(Box::new(row.clone()))));
        for ((namespace, _), row) in &self.qless {
            each(Loaded::Qless(namespace.clone(), Box::new(row.clone())));
        }
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
