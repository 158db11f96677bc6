//! Checks of waits: whether other shards know about the jobs that wait for theirs.
//!
//! A shard that ends a job sends a message to the shards that wait for it, so these checks are normally not needed.
//! But a store may be restored from a backup, and a bug may lose a message; a job must not wait forever then
//! (`rel T1`). Every minute a shard therefore asks each peer whether it knows about the jobs here that wait for jobs
//! there, some of them at a time. The question changes nothing and is not stored. The peer answers with the waits
//! that it does not know. For each of these the shard sends [`Message::Follow`] again, an ordinary message that is
//! stored and numbered.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::{
    CheckedWaits, Dependent, FailurePolicy, JobKey, Message, Now, Reply, ShardId, Timestamp, Wait,
};

use crate::engine::Engine;
use crate::state::{RemoteEdge, WaitChecks};
use crate::turn::Turn;

impl Engine {
    /// Whether it is time to ask a peer about jobs here that wait for jobs there.
    pub(super) fn is_to_ask(&self, now: Now, peer: &ShardId) -> bool {
        let is_stopped = self
            .peers
            .known
            .get(peer)
            .is_some_and(|peer| peer.record.stopped.is_some());
        let wait_checks = self.peers.wait_checks.get(peer);
        !is_stopped && wait_checks.is_some_and(|wait_checks| wait_checks.is_due(now))
    }

    /// The waits to ask a peer about now, except those whose first message is still in the outbox.
    pub(crate) fn waits_due(&self, now: Now, peer: &ShardId) -> Reply {
        let wait_checks = self.peers.wait_checks.get(peer);
        let wait_checks = wait_checks.filter(|_| self.is_to_ask(now, peer));
        let unsent_follows = wait_checks
            .map(|_| self.unsent_follows(peer))
            .unwrap_or_default();
        let wait = |place: &(JobKey, u32)| {
            let edge = &self.peers.up[place];
            Wait {
                namespace: self.spaces[self.space_of_job(place.0)].name.clone(),
                dependency: edge.dependency.id.clone(),
                dependent: place.0,
                slot: place.1,
                is_member: edge.is_member,
            }
        };
        let places = wait_checks.into_iter().flat_map(WaitChecks::next);
        let places = places.filter(|place| !unsent_follows.contains(place));
        Reply::Waits(places.map(wait).collect())
    }

    /// The waits among those of a peer that this shard does not know and to which no answer is in the outbox.
    pub(super) fn unknown_waits(&self, from: &ShardId, mut waits: Vec<Wait>) -> Vec<Wait> {
        waits.retain(|wait| !self.is_known_wait(from, wait));
        if waits.is_empty() {
            return waits;
        }
        let outbox = self.peers.known.get(from).map(|peer| peer.outbox.iter());
        let messages = outbox.into_iter().flatten().map(|record| &record.message);
        let answered: BTreeSet<(JobKey, u32)> = messages
            .filter_map(|message| match message {
                Message::Ended {
                    dependent, slot, ..
                }
                | Message::NoSuchJob {
                    dependent, slot, ..
                } => Some((*dependent, *slot)),
                _ => None,
            })
            .collect();
        waits.retain(|wait| !answered.contains(&(wait.dependent, wait.slot)));
        waits
    }

    /// Whether the peer will get a message when the dependency of a wait has ended.
    fn is_known_wait(&self, from: &ShardId, wait: &Wait) -> bool {
        let place = (from.clone(), wait.dependent, wait.slot);
        let listed = |key: JobKey| self.peers.down.get(&key).and_then(|all| all.get(&place));
        if let Some(key) = self.find_job(&wait.namespace, &wait.dependency) {
            return listed(key).is_some();
        }
        if let Some(key) = self.undecided_job(&wait.namespace, &wait.dependency) {
            return wait.is_member || listed(key).is_some();
        }
        // The job has ended or never existed. Only dependents that wait for its retry are still listed.
        self.peers.dependencies_of(&place).any(|key| {
            let waits_on = |dependent: &Dependent| dependent.policy == FailurePolicy::Wait;
            let has_ended = !self.is_live(key) && self.undecided_with(key).is_none();
            has_ended && listed(key).is_some_and(waits_on)
        })
    }

    /// The waits whose [`Message::Follow`] is in the outbox for a peer.
    fn unsent_follows(&self, peer: &ShardId) -> BTreeSet<(JobKey, u32)> {
        let outbox = self.peers.known.get(peer).map(|peer| peer.outbox.iter());
        let messages = outbox.into_iter().flatten().map(|record| &record.message);
        messages
            .filter_map(|message| match message {
                Message::Follow { dependent, .. } => Some((dependent.key, dependent.slot)),
                _ => None,
            })
            .collect()
    }

    /// Applies the answer to a check: sends [`Message::Follow`] for each unknown wait, unless one is in the outbox.
    pub(super) fn apply_checked_waits(
        &mut self,
        peer: &ShardId,
        looked: &CheckedWaits,
        turn: &mut Turn<'_>,
    ) {
        if looked.unknown.is_empty() {
            return;
        }
        let unsent_follows = self.unsent_follows(peer);
        for wait in &looked.unknown {
            let place = (wait.dependent, wait.slot);
            let is_meant = |edge: &&RemoteEdge| {
                edge.dependency.shard == *peer && edge.dependency.id == wait.dependency
            };
            // The dependency may have been met since.
            let edge = self.peers.up.get(&place).filter(is_meant).cloned();
            if let Some(edge) = edge.filter(|_| !unsent_follows.contains(&place)) {
                self.follow(place.0, place.1, &edge, turn);
            }
        }
    }

    /// Records that a check was answered and schedules the next one. Returns false if the same answer came before.
    pub(super) fn was_answered(&mut self, now: Now, peer: &ShardId, looked: &CheckedWaits) -> bool {
        let wait_checks = self.peers.wait_checks.get_mut(peer);
        wait_checks.is_some_and(|wait_checks| wait_checks.answered(now, looked.up_to))
    }

    /// The time at which the peers that a job waits for were last asked about it: the earliest of several, and `None`
    /// if one was not asked yet.
    pub(crate) fn asked_at(&self, key: JobKey) -> Option<Timestamp> {
        let created_at = self.job(key).created_at;
        let asked = self.remote_edges(key).map(|(slot, edge)| {
            let wait_checks = self.peers.wait_checks.get(&edge.dependency.shard)?;
            wait_checks
                .asked_at((key, slot))
                .filter(|at| *at >= created_at)
        });
        asked.min().flatten()
    }

    /// Checks that the indexes by peer and by dependent agree with the edges (`rel A1`).
    pub(crate) fn check_waits(&self, wrong: &mut Vec<String>) {
        let mut places: BTreeMap<&ShardId, BTreeSet<(JobKey, u32)>> = BTreeMap::new();
        for (place, edge) in &self.peers.up {
            let of_peer = places.entry(&edge.dependency.shard).or_default();
            of_peer.insert(*place);
        }
        let asked = self.peers.wait_checks.iter();
        let asked = asked.map(|(peer, wait_checks)| (peer, wait_checks.places()));
        if !asked.eq(places.iter().map(|(peer, places)| (*peer, places))) {
            wrong.push("peers are asked about other waits than there are".to_owned());
        }
        let down = self.peers.down.iter();
        let dependencies: BTreeSet<_> = down
            .flat_map(|(dependency, waiting)| waiting.keys().map(|place| (place, *dependency)))
            .map(|((shard, key, slot), dependency)| (shard.clone(), *key, *slot, dependency))
            .collect();
        if dependencies != self.peers.dependencies {
            wrong.push("dependencies are found by other dependents than wait for them".to_owned());
        }
    }
}
