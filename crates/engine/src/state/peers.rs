//! State about other shards: edges to their jobs, messages that wait for them, submissions over several shards.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use ganger_types::{
    Dependent, Due, Elapsed, FailurePolicy, Graph, JobId, JobKey, JobRef, Namespace, Now,
    OutboxRecord, PartRecord, PeerRecord, ShardId, Timestamp,
};

/// Interval between the beginnings of two rounds of checks.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// Pause between two questions of a round.
const ASK_PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of waits in one question.
const ASKED_MAX: usize = 1_000;

/// An edge from a live job to its dependency on another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteEdge {
    pub dependency: JobRef,
    pub policy: FailurePolicy,
    /// Whether both jobs were submitted together.
    pub is_member: bool,
}

/// Edges to and from other shards, and the messages to them.
#[derive(Default)]
pub(crate) struct Peers {
    /// Tag of the messages of this start; see [`OutboxRecord::tag`].
    pub tag: u64,
    pub known: BTreeMap<ShardId, Peer>,
    /// Peers whose row must be written at the end of the turn.
    pub changed: BTreeSet<ShardId>,
    /// Undelivered edges by dependent and slot. Only [`Peers::add_edge`] and its counterpart change them.
    pub up: BTreeMap<(JobKey, u32), RemoteEdge>,
    /// The same edges by peer, with the state of the checks.
    pub wait_checks: BTreeMap<ShardId, WaitChecks>,
    /// By dependency, the jobs of other shards that wait for it, by shard, number and slot.
    pub down: BTreeMap<JobKey, BTreeMap<(ShardId, JobKey, u32), Dependent>>,
    /// The same in reverse: shard, number, slot, dependency.
    pub dependencies: BTreeSet<(ShardId, JobKey, u32, JobKey)>,
    /// Finished jobs whose results unconfirmed messages need, with the number of such messages.
    pub pins: BTreeMap<JobKey, u32>,
    /// Parts of submissions over several shards.
    pub parts: BTreeMap<(Namespace, Graph), PartRecord>,
    /// Due times of the parts' timers.
    pub part_due: BTreeMap<(Namespace, Graph), Due>,
    /// Undecided parts by the number of their first job.
    pub undecided: BTreeMap<JobKey, (Namespace, Graph)>,
    /// Reserved numbers: the first, and how many.
    pub reserved: BTreeMap<JobKey, u32>,
    /// Graph that is being cancelled on all shards; its members send each other no messages.
    pub graph_being_cancelled: Option<(Namespace, Graph)>,
    /// Jobs that ended while this batch was applied, which the host read before as live.
    pub ended_since: BTreeSet<(Namespace, JobId)>,
    /// Whether a batch is being applied.
    pub is_reading: bool,
    /// Whether a message of this batch has retried members of a graph. The host reads members for one such message
    /// only.
    pub has_retried: bool,
}

/// The state about another shard.
pub(crate) struct Peer {
    pub record: PeerRecord,
    /// Unconfirmed messages, in order.
    pub outbox: VecDeque<OutboxRecord>,
}

impl Peer {
    pub(crate) fn new(record: PeerRecord) -> Self {
        Self {
            record,
            outbox: VecDeque::new(),
        }
    }

    /// Whether the waiting message with this number has another tag; 0 is no tag.
    pub(crate) fn has_another(&self, number: u64, tag: u64) -> bool {
        let mut waiting = self.outbox.iter();
        let ours = waiting.find(|record| record.number == number);
        tag != 0 && ours.is_some_and(|record| record.tag != tag)
    }
}

/// The edges to one peer, and the state of the checks of these waits. It is not stored: a start begins a new round.
#[derive(Debug, Default)]
pub(crate) struct WaitChecks {
    /// Dependents and their slots; never empty.
    places: BTreeSet<(JobKey, u32)>,
    /// Last wait that was checked in this round; `None` between two rounds.
    reached: Option<(JobKey, u32)>,
    /// Time of the next question.
    due_at: Elapsed,
    began_at: Elapsed,
    /// Time of the last answer in this round.
    answered_at: Option<Timestamp>,
    answered_before_at: Option<Timestamp>,
}

impl WaitChecks {
    /// The dependents and their slots.
    pub(crate) fn places(&self) -> &BTreeSet<(JobKey, u32)> {
        &self.places
    }

    /// Whether it is time for the next question.
    pub(crate) fn is_due(&self, now: Now) -> bool {
        self.due_at <= now.elapsed
    }

    /// The waits of the next question.
    pub(crate) fn next(&self) -> impl Iterator<Item = &(JobKey, u32)> + '_ {
        let after = self.reached.map_or(Bound::Unbounded, Bound::Excluded);
        self.places.range((after, Bound::Unbounded)).take(ASKED_MAX)
    }

    /// Records an answer that covers the waits up to `up_to`. Returns false if the same answer came before.
    pub(crate) fn answered(&mut self, now: Now, up_to: (JobKey, u32)) -> bool {
        if self.due_at > now.elapsed {
            return false;
        }
        if self.reached.is_none() {
            self.began_at = now.elapsed;
            self.answered_before_at = self.answered_at;
        }
        self.answered_at = Some(now.wall);
        self.due_at = now.elapsed.after(ASK_PAUSE);
        self.reached = self.reached.max(Some(up_to));
        self.end_round_if_over();
        true
    }

    /// Ends the round if all waits have been checked, and schedules the next round.
    fn end_round_if_over(&mut self) {
        if self.reached.is_some() && self.next().next().is_none() {
            self.reached = None;
            self.due_at = self.due_at.max(self.began_at.after(ASK_EVERY));
        }
    }

    /// The time at which the peer was last asked about this edge.
    pub(crate) fn asked_at(&self, place: (JobKey, u32)) -> Option<Timestamp> {
        match self.reached {
            Some(reached) if place > reached => self.answered_before_at,
            _ => self.answered_at,
        }
    }
}

impl Peers {
    /// Adds an edge from a job to another shard.
    pub(crate) fn add_edge(&mut self, now: Now, place: (JobKey, u32), edge: RemoteEdge) {
        let wait_checks = self
            .wait_checks
            .entry(edge.dependency.shard.clone())
            .or_default();
        if wait_checks.places.is_empty() {
            wait_checks.due_at = now.elapsed.after(ASK_EVERY);
        }
        wait_checks.places.insert(place);
        self.up.insert(place, edge);
    }

    pub(crate) fn remove_edge(&mut self, place: (JobKey, u32)) -> Option<RemoteEdge> {
        let edge = self.up.remove(&place)?;
        if let Some(wait_checks) = self.wait_checks.get_mut(&edge.dependency.shard) {
            wait_checks.places.remove(&place);
            wait_checks.end_round_if_over();
            if wait_checks.places.is_empty() {
                self.wait_checks.remove(&edge.dependency.shard);
            }
        }
        Some(edge)
    }

    /// Adds a dependent on another shard. Returns false if it was known.
    pub(crate) fn add_dependent(&mut self, dependency: JobKey, dependent: Dependent) -> bool {
        let place = (dependent.shard.clone(), dependent.key, dependent.slot);
        let (shard, key, slot) = place.clone();
        self.dependencies.insert((shard, key, slot, dependency));
        let waiting = self.down.entry(dependency).or_default();
        let is_known = waiting.get(&place) == Some(&dependent);
        waiting.insert(place, dependent);
        !is_known
    }

    pub(crate) fn remove_dependent(
        &mut self,
        dependency: JobKey,
        place: &(ShardId, JobKey, u32),
    ) -> Option<Dependent> {
        let waiting = self.down.get_mut(&dependency)?;
        let dependent = waiting.remove(place)?;
        if waiting.is_empty() {
            self.down.remove(&dependency);
        }
        let (shard, key, slot) = place.clone();
        self.dependencies.remove(&(shard, key, slot, dependency));
        Some(dependent)
    }

    /// The live or finished jobs that this slot of another shard's job waits for. There is one, unless a restore made
    /// that shard use the number again.
    pub(crate) fn dependencies_of(
        &self,
        (shard, key, slot): &(ShardId, JobKey, u32),
    ) -> impl Iterator<Item = JobKey> + '_ {
        let first = (shard.clone(), *key, *slot, JobKey(0));
        let last = (shard.clone(), *key, *slot, JobKey(u64::MAX));
        let range = self.dependencies.range(first..=last);
        range.map(|(.., dependency)| *dependency)
    }

    /// Schedules the next question soon, because the peer has restarted.
    pub(crate) fn ask_soon(&mut self, now: Now, peer: &ShardId) {
        if let Some(wait_checks) = self.wait_checks.get_mut(peer) {
            wait_checks.due_at = wait_checks.due_at.min(now.elapsed.after(ASK_PAUSE));
        }
    }
}
