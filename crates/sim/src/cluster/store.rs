//! The model store of a shard at level 3: the rows of level 1, and those about other shards.

use std::collections::BTreeMap;

use ganger_engine::{Engine, Loader, Start};
use ganger_store::Loaded;
use ganger_types::{
    Change, Dependent, Graph, InputRow, JobKey, Meta, Namespace, OutboxRecord, Part, PartRecord,
    PeerRecord, ShardId,
};

use super::planted::PlantedBug;
use crate::rows::Rows;

/// The key of a submission over several shards.
pub(crate) type Name = (Namespace, Graph);

/// All durable rows of a shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) rows: Rows,
    pub(crate) epoch: u64,
    pub(crate) peers: BTreeMap<ShardId, PeerRecord>,
    pub(crate) outbox: BTreeMap<(ShardId, u64), OutboxRecord>,
    pub(crate) parts: BTreeMap<Name, PartRecord>,
    pub(crate) part_jobs: BTreeMap<Name, Part>,
    pub(crate) dependents: BTreeMap<(JobKey, ShardId, JobKey, u32), Dependent>,
}

impl Store {
    /// Applies a commit completely; an error fails the run.
    pub(crate) fn apply(&mut self, meta: Meta, changes: &[Change]) -> Result<(), String> {
        let mut own = Vec::new();
        for change in changes {
            if !self.put(change)? {
                own.push(change.clone());
            }
        }
        self.rows.apply(self.rows.sequence + 1, meta, &own)
    }

    /// Applies a change about other shards; returns false for other changes.
    fn put(&mut self, change: &Change) -> Result<bool, String> {
        match change {
            Change::PutOutbox(record) => {
                let place = (record.to.clone(), record.number);
                self.outbox.insert(place, OutboxRecord::clone(record));
            }
            Change::RemoveOutbox(shard, number) => {
                let gone = self.outbox.remove(&(shard.clone(), *number));
                gone.ok_or_else(|| format!("no message {number} waits for shard {shard}"))?;
            }
            Change::PutPeer(record) => {
                self.peers
                    .insert(record.shard.clone(), PeerRecord::clone(record));
            }
            Change::PutPart(record) => {
                let name = (record.namespace.clone(), record.graph.clone());
                self.parts.insert(name, PartRecord::clone(record));
            }
            Change::RemovePart(namespace, graph) => {
                let name = (namespace.clone(), graph.clone());
                self.part_jobs.remove(&name);
                let gone = self.parts.remove(&name);
                gone.ok_or_else(|| format!("there is no part of graph {graph}"))?;
            }
            Change::PutPartJobs(part) => {
                let name = (part.record.namespace.clone(), part.record.graph.clone());
                self.part_jobs.insert(name, Part::clone(part));
            }
            Change::RemovePartJobs(namespace, graph) => {
                let gone = self.part_jobs.remove(&(namespace.clone(), graph.clone()));
                gone.ok_or_else(|| format!("there are no jobs of graph {graph}"))?;
            }
            Change::PutDependent(dependency, dependent) => {
                let (shard, key, slot) = (dependent.shard.clone(), dependent.key, dependent.slot);
                self.dependents
                    .insert((*dependency, shard, key, slot), Dependent::clone(dependent));
            }
            Change::RemoveDependent(dependency, shard, key, slot) => {
                let gone = self
                    .dependents
                    .remove(&(*dependency, shard.clone(), *key, *slot));
                gone.ok_or_else(|| format!("job {key} of shard {shard} does not wait"))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Loads a new engine from the rows.
    pub(crate) fn load(&self, start: Start, planted: PlantedBug) -> Engine {
        let mut loader = Loader::new(start);
        let mut inputs_given = false;
        self.rows.load(&mut |row| {
            // Inputs come after the jobs and before the leases; level 1 has no inputs from other shards.
            if !inputs_given && matches!(row, Loaded::Lease(_)) {
                inputs_given = true;
                self.load_remote_inputs(&mut loader);
            }
            give(&mut loader, row);
        });
        if !inputs_given {
            self.load_remote_inputs(&mut loader);
        }
        self.peers
            .values()
            .cloned()
            .for_each(|row| loader.peer(row));
        for row in self.outbox.values().filter(|_| !planted.is(310)) {
            loader.outbox(row.clone());
        }
        for row in self.parts.values() {
            if !(planted.is(304) && row.is_committed) {
                loader.part(row.clone());
            }
        }
        for ((dependency, ..), row) in &self.dependents {
            loader.dependent(*dependency, row.clone());
        }
        loader.finish()
    }

    fn load_remote_inputs(&self, loader: &mut Loader) {
        for ((job, slot), state) in &self.rows.inputs {
            if matches!(state, ganger_types::InputState::Remote { .. }) {
                loader.input(&InputRow {
                    job: *job,
                    slot: *slot,
                    state: state.clone(),
                });
            }
        }
    }

    /// Whether messages wait for a shard.
    pub(crate) fn waits_for(&self, shard: &ShardId) -> bool {
        let first = (shard.clone(), 0);
        self.outbox
            .range(first..)
            .next()
            .is_some_and(|((to, _), _)| to == shard)
    }
}

fn give(loader: &mut Loader, row: Loaded) {
    match row {
        Loaded::Namespace(record) => loader.namespace(*record),
        Loaded::Queue(record) => loader.queue(*record),
        Loaded::Job(record) => loader.job(&record),
        Loaded::Input(row) => {
            if !matches!(row.state, ganger_types::InputState::Remote { .. }) {
                loader.input(&row);
            }
        }
        Loaded::Lease(record) => loader.lease(*record),
        Loaded::IdempotencyRecord(record) => loader.idempotency_record(*record),
        Loaded::TagCount(namespace, tag, count) => loader.tag_count(&namespace, tag, count),
        Loaded::GroupCount(namespace, group, count) => loader.group_count(&namespace, group, count),
        Loaded::Statistics(record) => loader.statistics(*record),
        other => unreachable!("level 3 has no such row: {other:?}"),
    }
}
