//! The slow timer of jobs that wait for jobs of other shards.
//!
//! A shard that ends a job tells the shards that wait for it, so none of this is needed while nobody errs. But a store
//! may be restored from a backup, and a mistake of this program may lose a word; then nobody must wait forever (`rel
//! T1`). So a shard asks each peer every minute whether it knows of the jobs here that wait for jobs there, some of
//! them at a time. The question changes nothing and is not stored; it is answered with those waits that the peer knows
//! nothing of. For each of these the shard says once more that it waits, and what the peer answers to that is stored
//! and numbered like everything else that shards tell each other: that it will say when the dependency has ended, how
//! it ended, or that there is no such job.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::{
    CheckedWaits, Dependent, FailurePolicy, JobKey, Message, Now, Reply, ShardId, Timestamp, Wait,
};

use crate::engine::Engine;
use crate::state::{Asking, RemoteEdge};
use crate::turn::Turn;

impl Engine {
    /// Whether it is time to ask a peer about jobs here that wait for jobs there.
    pub(super) fn is_to_ask(&self, now: Now, peer: &ShardId) -> bool {
        let is_stopped = self
            .peers
            .known
            .get(peer)
            .is_some_and(|peer| peer.record.stopped.is_some());
        let asking = self.peers.asking.get(peer);
        !is_stopped && asking.is_some_and(|asking| asking.is_due(now))
    }

    /// The waits to ask a peer about now; not those of which it is still to hear for the first time.
    pub(crate) fn waits_due(&self, now: Now, peer: &ShardId) -> Reply {
        let asking = self.peers.asking.get(peer);
        let asking = asking.filter(|_| self.is_to_ask(now, peer));
        let told = asking.map(|_| self.told(peer)).unwrap_or_default();
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
        let places = asking.into_iter().flat_map(Asking::next);
        let places = places.filter(|place| !told.contains(place));
        Reply::Waits(places.map(wait).collect())
    }

    /// Of the waits that a peer asks about, those that nothing is known of here: not that it waits, and no answer is
    /// on its way.
    pub(super) fn unknown_waits(&self, from: &ShardId, mut waits: Vec<Wait>) -> Vec<Wait> {
        waits.retain(|wait| !self.knows_of(from, wait));
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

    /// Whether the peer will be told when the job that it waits for has ended.
    fn knows_of(&self, from: &ShardId, wait: &Wait) -> bool {
        let place = (from.clone(), wait.dependent, wait.slot);
        let listed = |key: JobKey| self.peers.down.get(&key).and_then(|all| all.get(&place));
        if let Some(key) = self.find_job(&wait.namespace, &wait.dependency) {
            return listed(key).is_some();
        }
        if let Some(key) = self.undecided_job(&wait.namespace, &wait.dependency) {
            return wait.is_member || listed(key).is_some();
        }
        // It has ended, or never was. Only who waits until it is retried is still on the list then.
        self.peers.dependencies_of(&place).any(|key| {
            let waits_on = |dependent: &Dependent| dependent.policy == FailurePolicy::Wait;
            let has_ended = !self.is_live(key) && self.undecided_with(key).is_none();
            has_ended && listed(key).is_some_and(waits_on)
        })
    }

    /// The waits of which word is on its way to a peer.
    fn told(&self, peer: &ShardId) -> BTreeSet<(JobKey, u32)> {
        let outbox = self.peers.known.get(peer).map(|peer| peer.outbox.iter());
        let messages = outbox.into_iter().flatten().map(|record| &record.message);
        messages
            .filter_map(|message| match message {
                Message::Follow { dependent, .. } => Some((dependent.key, dependent.slot)),
                _ => None,
            })
            .collect()
    }

    /// A peer has answered a question. Of what it does not know it is told once more, unless that is on its way
    /// already.
    pub(super) fn waits_were_looked_at(
        &mut self,
        peer: &ShardId,
        looked: &CheckedWaits,
        turn: &mut Turn<'_>,
    ) {
        if looked.unknown.is_empty() {
            return;
        }
        let told = self.told(peer);
        for wait in &looked.unknown {
            let place = (wait.dependent, wait.slot);
            let is_meant = |edge: &&RemoteEdge| {
                edge.dependency.shard == *peer && edge.dependency.id == wait.dependency
            };
            // It may have been answered since.
            let edge = self.peers.up.get(&place).filter(is_meant).cloned();
            if let Some(edge) = edge.filter(|_| !told.contains(&place)) {
                self.follow(place.0, place.1, &edge, turn);
            }
        }
    }

    /// A question was answered: the next one has time. False if the same answer came before.
    pub(super) fn was_answered(&mut self, now: Now, peer: &ShardId, looked: &CheckedWaits) -> bool {
        let asking = self.peers.asking.get_mut(peer);
        asking.is_some_and(|asking| asking.answered(now, looked.up_to))
    }

    /// When the peers that a job waits for were asked about it; the longest ago, and `None` if one was not yet.
    pub(crate) fn asked_at(&self, key: JobKey) -> Option<Timestamp> {
        let created_at = self.job(key).created_at;
        let asked = self.remote_edges(key).map(|(slot, edge)| {
            let asking = self.peers.asking.get(&edge.dependency.shard)?;
            asking.asked_at((key, slot)).filter(|at| *at >= created_at)
        });
        asked.min().flatten()
    }

    /// What is found by peer and by dependent is what there is (`rel A1`).
    pub(crate) fn check_waits(&self, wrong: &mut Vec<String>) {
        let mut places: BTreeMap<&ShardId, BTreeSet<(JobKey, u32)>> = BTreeMap::new();
        for (place, edge) in &self.peers.up {
            let of_peer = places.entry(&edge.dependency.shard).or_default();
            of_peer.insert(*place);
        }
        let asked = self.peers.asking.iter();
        let asked = asked.map(|(peer, asking)| (peer, asking.places()));
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
