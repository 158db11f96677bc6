//! Edges between jobs of different shards, from either end.

use ganger_types::{
    Carried, Change, Dependent, FailurePolicy, InputRow, InputState, JobKey, JobRef, Message, Now,
    Outcome,
};

use super::RemoteEdge;
use crate::Effects;
use crate::engine::Engine;
use crate::transition::Ended;

impl Engine {
    /// A job here waits for one elsewhere. Its shard knows that already if both are of one submission.
    pub(crate) fn link(
        &mut self,
        now: Now,
        key: JobKey,
        slot: u32,
        edge: RemoteEdge,
        out: &mut Effects,
    ) -> InputRow {
        if !edge.is_member {
            self.follow(now, key, slot, &edge, out);
        }
        let state = InputState::Remote {
            upstream: edge.upstream.clone(),
            policy: edge.policy,
            is_member: edge.is_member,
        };
        self.peers.add_edge(now, (key, slot), edge);
        InputRow {
            job: key,
            slot,
            state,
        }
    }

    /// Asks the upstream's shard to say when it has ended.
    pub(super) fn follow(
        &mut self,
        now: Now,
        key: JobKey,
        slot: u32,
        edge: &RemoteEdge,
        out: &mut Effects,
    ) {
        let dependent = Dependent {
            shard: self.shard.clone(),
            key,
            slot,
            id: self.job(key).id(),
            policy: edge.policy,
            is_member: edge.is_member,
        };
        let namespace = self.spaces[self.space_of_job(key).at()].name.clone();
        let message = Message::Follow {
            namespace,
            upstream: edge.upstream.id.clone(),
            dependent,
        };
        self.post(now, &edge.upstream.shard, message, out);
    }

    /// A job elsewhere waits for one here. Once is enough.
    pub(super) fn add_dependent(
        &mut self,
        upstream: JobKey,
        dependent: Dependent,
        out: &mut Effects,
    ) {
        if self.peers.add_dependent(upstream, dependent.clone()) {
            out.changes
                .push(Change::PutDependent(upstream, Box::new(dependent)));
        }
    }

    pub(super) fn remove_dependent(
        &mut self,
        upstream: JobKey,
        place: &(ganger_types::ShardId, JobKey, u32),
        out: &mut Effects,
    ) -> Option<Dependent> {
        let dependent = self.peers.remove_dependent(upstream, place)?;
        let (shard, key, slot) = place.clone();
        out.changes
            .push(Change::RemoveDependent(upstream, shard, key, slot));
        Some(dependent)
    }

    /// Tells the shards whose jobs wait for one that has ended. Those that wait until it is revived and
    /// succeeds stay on the list.
    pub(crate) fn tell_dependents_elsewhere(&mut self, now: Now, ended: &Ended, out: &mut Effects) {
        if self.peers.is_reading {
            let name = (ended.namespace.clone(), ended.id.clone());
            self.peers.ended_since.insert(name);
        }
        let Some(waiting) = self.peers.down.get(&ended.key) else {
            return;
        };
        let is_over = |dependent: &&Dependent| {
            ended.outcome == Outcome::Succeeded || dependent.policy != FailurePolicy::Wait
        };
        let told: Vec<Dependent> = waiting.values().filter(is_over).cloned().collect();
        for dependent in told {
            let place = (dependent.shard.clone(), dependent.key, dependent.slot);
            self.remove_dependent(ended.key, &place, out);
            if dependent.is_member && self.falls(ended) {
                continue;
            }
            let result = if ended.outcome == Outcome::Succeeded && ended.has_result {
                Carried::Stored(ended.key)
            } else {
                Carried::None
            };
            self.tell_of_end(now, ended, &dependent, result, out);
        }
    }

    pub(super) fn tell_of_end(
        &mut self,
        now: Now,
        ended: &Ended,
        dependent: &Dependent,
        result: Carried,
        out: &mut Effects,
    ) {
        let message = Message::Ended {
            namespace: ended.namespace.clone(),
            upstream: ended.id.clone(),
            dependent: dependent.key,
            slot: dependent.slot,
            outcome: ended.outcome,
            result,
        };
        self.post(now, &dependent.shard, message, out);
    }

    /// Whether the graph of a job that has ended is being called off on all its shards.
    fn falls(&self, ended: &Ended) -> bool {
        let Some((namespace, graph)) = &self.peers.falling else {
            return false;
        };
        *namespace == ended.namespace && ended.graph.as_ref() == Some(graph)
    }

    /// A job that has ended waits for nobody elsewhere any more. If it did not succeed, members of its graph
    /// that nobody else needs are called off (`rel G5`).
    pub(crate) fn let_go_elsewhere(&mut self, now: Now, ended: &Ended, out: &mut Effects) {
        let edges = self.unlink(ended.key);
        let falls = self.falls(ended);
        for (slot, edge) in edges {
            if edge.is_member && falls {
                continue;
            }
            let unneeded_in = ended
                .graph
                .clone()
                .filter(|_| edge.is_member && ended.outcome != Outcome::Succeeded);
            let message = Message::LetGo {
                namespace: ended.namespace.clone(),
                upstream: edge.upstream.id,
                dependent: ended.key,
                slot,
                unneeded_in,
            };
            self.post(now, &edge.upstream.shard, message, out);
        }
    }

    /// A live job is to wait for nobody elsewhere any more; gives how many it waited for. The caller counts.
    pub(crate) fn forsake(&mut self, now: Now, key: JobKey, out: &mut Effects) -> u32 {
        let namespace = self.spaces[self.space_of_job(key).at()].name.clone();
        let edges = self.unlink(key);
        let count = u32::try_from(edges.len()).expect("edges are limited");
        for (slot, edge) in edges {
            let message = Message::LetGo {
                namespace: namespace.clone(),
                upstream: edge.upstream.id,
                dependent: key,
                slot,
                unneeded_in: None,
            };
            self.post(now, &edge.upstream.shard, message, out);
            out.changes.push(Change::RemoveInput { job: key, slot });
        }
        count
    }

    /// Takes all edges to other shards from a job.
    pub(crate) fn unlink(&mut self, key: JobKey) -> Vec<(u32, RemoteEdge)> {
        let slots: Vec<u32> = self.remote_edges(key).map(|(slot, _)| slot).collect();
        slots
            .into_iter()
            .filter_map(|slot| Some((slot, self.peers.remove_edge((key, slot))?)))
            .collect()
    }

    /// Undelivered edges of a job to jobs of other shards.
    pub(crate) fn remote_edges(
        &self,
        key: JobKey,
    ) -> impl Iterator<Item = (u32, &RemoteEdge)> + '_ {
        self.peers
            .up
            .range((key, 0)..=(key, u32::MAX))
            .map(|((_, slot), edge)| (*slot, edge))
    }

    /// The state of an input that another shard's job has met.
    pub(super) fn received(
        upstream: JobRef,
        policy: FailurePolicy,
        result: Carried,
    ) -> Option<InputState> {
        let value = match result {
            Carried::None => ganger_types::Bytes::from_static(b"null"),
            Carried::Bytes(bytes) => bytes,
            // Only the sender can read that: whoever sends puts the bytes in its place.
            Carried::Stored(_) => return None,
        };
        Some(InputState::Received {
            upstream,
            policy,
            value,
        })
    }
}
