//! Edges between jobs of different shards.

use std::collections::BTreeMap;

use ganger_types::{
    Change, Dependent, FailurePolicy, InputRow, InputState, JobKey, JobRef, Message, MessageResult,
    Now, Outcome, ShardId,
};

use crate::engine::Engine;
use crate::state::{EndedJob, RemoteEdge};
use crate::turn::Turn;

impl Engine {
    /// Adds an edge from a job to its dependency on another shard. If both are of one submission, that shard knows
    /// the edge already.
    pub(crate) fn link(
        &mut self,
        key: JobKey,
        slot: u32,
        edge: RemoteEdge,
        turn: &mut Turn<'_>,
    ) -> InputRow {
        if !edge.is_member {
            self.follow(key, slot, &edge, turn);
        }
        self.linked(turn.now, key, slot, edge)
    }

    /// Adds an edge from a retried job to its dependency on another shard. With `retries`, that shard also retries
    /// the dependency if it was cancelled because of this job.
    pub(crate) fn link_again(
        &mut self,
        (key, slot): (JobKey, u32),
        (dependency, policy): (&JobRef, FailurePolicy),
        retries: bool,
        turn: &mut Turn<'_>,
    ) -> InputRow {
        let edge = RemoteEdge {
            dependency: dependency.clone(),
            policy,
            is_member: false,
        };
        self.send_follow((key, slot), &edge, retries, turn);
        self.linked(turn.now, key, slot, edge)
    }

    fn linked(&mut self, now: Now, key: JobKey, slot: u32, edge: RemoteEdge) -> InputRow {
        let state = InputState::Remote {
            dependency: edge.dependency.clone(),
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

    /// Asks the shard of a dependency for a message when it has ended.
    pub(super) fn follow(
        &mut self,
        key: JobKey,
        slot: u32,
        edge: &RemoteEdge,
        turn: &mut Turn<'_>,
    ) {
        self.send_follow((key, slot), edge, false, turn);
    }

    fn send_follow(
        &mut self,
        (key, slot): (JobKey, u32),
        edge: &RemoteEdge,
        retries: bool,
        turn: &mut Turn<'_>,
    ) {
        let dependent = Dependent {
            shard: self.shard.clone(),
            key,
            slot,
            id: self.job(key).id(),
            policy: edge.policy,
            is_member: edge.is_member,
        };
        let namespace = self.spaces[self.space_of_job(key)].name.clone();
        let message = Message::Follow {
            namespace,
            dependency: edge.dependency.id.clone(),
            dependent,
            retries,
        };
        self.post(&edge.dependency.shard, message, turn);
    }

    /// Records that a job of another shard waits for a job here, unless that is known.
    pub(super) fn add_dependent(
        &mut self,
        dependency: JobKey,
        dependent: Dependent,
        turn: &mut Turn<'_>,
    ) {
        if self.peers.add_dependent(dependency, dependent.clone()) {
            turn.out
                .changes
                .push(Change::PutDependent(dependency, Box::new(dependent)));
        }
    }

    pub(super) fn remove_dependent(
        &mut self,
        dependency: JobKey,
        place: &(ganger_types::ShardId, JobKey, u32),
        turn: &mut Turn<'_>,
    ) -> Option<Dependent> {
        let dependent = self.peers.remove_dependent(dependency, place)?;
        let (shard, key, slot) = place.clone();
        turn.out
            .changes
            .push(Change::RemoveDependent(dependency, shard, key, slot));
        Some(dependent)
    }

    /// Whether a job of another shard waits for this live or finished job. The list of a job that did not succeed
    /// also has those that failed because of it; they do not wait.
    pub(crate) fn is_awaited_elsewhere(&self, key: JobKey) -> bool {
        let Some(dependents) = self.peers.down.get(&key) else {
            return false;
        };
        let mut dependents = dependents.values();
        self.is_live(key) || dependents.any(|dependent| dependent.policy == FailurePolicy::Wait)
    }

    /// Whether a job of another shard is listed because it failed with this one, which has ended.
    pub(super) fn failed_with(&self, dependency: JobKey, place: &(ShardId, JobKey, u32)) -> bool {
        let has_ended = !self.is_live(dependency) && self.undecided_with(dependency).is_none();
        let listed = self
            .peers
            .down
            .get(&dependency)
            .and_then(|all| all.get(place));
        has_ended && listed.is_some_and(|dependent| dependent.policy == FailurePolicy::Fail)
    }

    /// Removes from the list of a finished job those that failed because of it, and returns them.
    pub(crate) fn take_failed_dependents(
        &mut self,
        dependency: JobKey,
        turn: &mut Turn<'_>,
    ) -> Vec<Dependent> {
        debug_assert!(!self.is_live(dependency), "those of a live job wait for it");
        let listed = self.peers.down.get(&dependency);
        let failed_dependents = listed.into_iter().flat_map(BTreeMap::values);
        let failed_dependents: Vec<Dependent> = failed_dependents
            .filter(|dependent| dependent.policy != FailurePolicy::Wait)
            .cloned()
            .collect();
        for dependent in &failed_dependents {
            let place = (dependent.shard.clone(), dependent.key, dependent.slot);
            self.remove_dependent(dependency, &place, turn);
        }
        failed_dependents
    }

    /// Sends a message to the shards whose jobs wait for an ended job. If it did not succeed, two kinds of dependents
    /// stay on its list: those that wait until it is retried, and those that fail now and are retried with it.
    pub(crate) fn notify_dependents_elsewhere(&mut self, ended: &EndedJob, turn: &mut Turn<'_>) {
        if self.peers.is_reading {
            let name = (ended.namespace.clone(), ended.id.clone());
            self.peers.ended_since.insert(name);
        }
        let Some(waiting) = self.peers.down.get(&ended.key) else {
            return;
        };
        let told: Vec<Dependent> = waiting.values().cloned().collect();
        for dependent in told {
            let is_cancelled = dependent.is_member && self.is_graph_being_cancelled(ended);
            if !stays_listed(ended, &dependent) || is_cancelled {
                let place = (dependent.shard.clone(), dependent.key, dependent.slot);
                self.remove_dependent(ended.key, &place, turn);
            }
            if !is_cancelled {
                self.notify_end(ended, &dependent, turn);
            }
        }
    }

    /// A job of another shard waits for a job that has ended already.
    pub(super) fn notify_late_dependent(
        &mut self,
        ended: &EndedJob,
        dependent: &Dependent,
        turn: &mut Turn<'_>,
    ) {
        if stays_listed(ended, dependent) {
            self.add_dependent(ended.key, dependent.clone(), turn);
        }
        self.notify_end(ended, dependent, turn);
    }

    /// Sends the end of a job to a dependent that does not wait for its retry.
    fn notify_end(&mut self, ended: &EndedJob, dependent: &Dependent, turn: &mut Turn<'_>) {
        let has_succeeded = ended.outcome == Outcome::Succeeded;
        if !has_succeeded && dependent.policy == FailurePolicy::Wait {
            return;
        }
        let result = if has_succeeded && ended.has_result {
            MessageResult::Stored(ended.key)
        } else {
            MessageResult::None
        };
        let message = Message::Ended {
            namespace: ended.namespace.clone(),
            dependency: ended.id.clone(),
            dependent: dependent.key,
            slot: dependent.slot,
            outcome: ended.outcome,
            result,
        };
        self.post(&dependent.shard, message, turn);
    }

    /// Whether the graph of an ended job is being cancelled on all its shards.
    fn is_graph_being_cancelled(&self, ended: &EndedJob) -> bool {
        let Some((namespace, graph)) = &self.peers.graph_being_cancelled else {
            return false;
        };
        *namespace == ended.namespace && ended.graph.as_ref() == Some(graph)
    }

    /// Removes the edges from an ended job to other shards. If the job did not succeed, those shards cancel members
    /// of its graph that no other job needs (`rel G5`).
    pub(crate) fn drop_dependencies_elsewhere(&mut self, ended: &EndedJob, turn: &mut Turn<'_>) {
        let edges = self.unlink(ended.key);
        let is_graph_being_cancelled = self.is_graph_being_cancelled(ended);
        for (slot, edge) in edges {
            if edge.is_member && is_graph_being_cancelled {
                continue;
            }
            let unneeded_in = ended
                .graph
                .clone()
                .filter(|_| edge.is_member && ended.outcome != Outcome::Succeeded);
            let message = Message::LetGo {
                namespace: ended.namespace.clone(),
                dependency: edge.dependency.id,
                dependent: ended.key,
                slot,
                unneeded_in,
            };
            self.post(&edge.dependency.shard, message, turn);
        }
    }

    /// Removes the edges from a live job to other shards and returns their number. The caller updates the job's
    /// count.
    pub(crate) fn drop_remote_dependencies(&mut self, key: JobKey, turn: &mut Turn<'_>) -> u32 {
        let namespace = self.spaces[self.space_of_job(key)].name.clone();
        let edges = self.unlink(key);
        let count = u32::try_from(edges.len()).expect("edges are limited");
        for (slot, edge) in edges {
            let message = Message::LetGo {
                namespace: namespace.clone(),
                dependency: edge.dependency.id,
                dependent: key,
                slot,
                unneeded_in: None,
            };
            self.post(&edge.dependency.shard, message, turn);
            turn.out
                .changes
                .push(Change::RemoveInput { job: key, slot });
        }
        count
    }

    /// Removes all edges from a job to other shards.
    pub(crate) fn unlink(&mut self, key: JobKey) -> Vec<(u32, RemoteEdge)> {
        let slots: Vec<u32> = self.remote_edges(key).map(|(slot, _)| slot).collect();
        slots
            .into_iter()
            .filter_map(|slot| Some((slot, self.peers.remove_edge((key, slot))?)))
            .collect()
    }

    /// The undelivered edges of a job to jobs of other shards.
    pub(crate) fn remote_edges(
        &self,
        key: JobKey,
    ) -> impl Iterator<Item = (u32, &RemoteEdge)> + '_ {
        self.peers
            .up
            .range((key, 0)..=(key, u32::MAX))
            .map(|((_, slot), edge)| (*slot, edge))
    }

    /// The state of an input that a job of another shard has met.
    pub(super) fn received(
        dependency: JobRef,
        policy: FailurePolicy,
        result: MessageResult,
    ) -> Option<InputState> {
        let value = match result {
            MessageResult::None => ganger_types::Bytes::from_static(b"null"),
            MessageResult::Bytes(bytes) => bytes,
            // Only the sender can read its store: it replaces this with the bytes when it sends.
            MessageResult::Stored(_) => return None,
        };
        Some(InputState::Received {
            dependency,
            policy,
            value,
        })
    }
}

/// Whether a dependent stays on the list of an ended dependency: it waits for the retry, or fails now and may be
/// retried with it.
fn stays_listed(ended: &EndedJob, dependent: &Dependent) -> bool {
    ended.outcome != Outcome::Succeeded && dependent.policy != FailurePolicy::Ignore
}
