//! What is known of other shards: edges that lead there, messages that wait for them, submissions that span several.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use ganger_types::{
    Dependent, Due, Elapsed, FailurePolicy, Graph, JobId, JobKey, JobRef, Namespace, Now,
    OutboxRecord, PartRecord, PeerRecord, ShardId, Timestamp,
};

/// How long after the beginning of one round the next one begins.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// The pause between two questions of a round.
const ASK_PAUSE: Duration = Duration::from_secs(5);
/// Waits that are asked about at once.
const ASKED_MAX: usize = 1_000;

/// One input or dependency of a live job that another shard's job is to meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteEdge {
    pub dependency: JobRef,
    pub policy: FailurePolicy,
    /// Whether both were submitted together.
    pub is_member: bool,
}

/// Who waits here for what elsewhere, who waits elsewhere for what is here, and the messages between.
#[derive(Default)]
pub(crate) struct Peers {
    /// Drawn at each start; see [`OutboxRecord::tag`].
    pub tag: u64,
    pub known: BTreeMap<ShardId, Peer>,
    /// Whose row is to be written at the end of the turn.
    pub changed: BTreeSet<ShardId>,
    /// Undelivered edges by dependent and slot. Changed through [`Peers::add_edge`] and its counterpart only.
    pub up: BTreeMap<(JobKey, u32), RemoteEdge>,
    /// The same edges by peer, with how far it was asked about them.
    pub asking: BTreeMap<ShardId, Asking>,
    /// By dependency, who waits for it: shard, number and slot, for finding; the rest beside it.
    pub down: BTreeMap<JobKey, BTreeMap<(ShardId, JobKey, u32), Dependent>>,
    /// The same the other way round: shard, number, slot, dependency.
    pub dependencies: BTreeSet<(ShardId, JobKey, u32, JobKey)>,
    /// Finished jobs whose results unconfirmed messages need, and how many of those there are.
    pub pins: BTreeMap<JobKey, u32>,
    /// Submissions over several shards that have a part here.
    pub parts: BTreeMap<(Namespace, Graph), PartRecord>,
    /// What their timers are armed for.
    pub part_due: BTreeMap<(Namespace, Graph), Due>,
    /// The undecided of them, by the number of their first job.
    pub undecided: BTreeMap<JobKey, (Namespace, Graph)>,
    /// Numbers given out for parts to come: the first, and how many.
    pub reserved: BTreeMap<JobKey, u32>,
    /// The graph that is being cancelled everywhere: its members need not tell each other.
    pub falling: Option<(Namespace, Graph)>,
    /// Jobs that ended while this batch was applied: what the host looked up before does not tell of them.
    pub ended_since: BTreeSet<(Namespace, JobId)>,
    /// Whether a batch is being applied.
    pub is_reading: bool,
    /// Whether a message of this batch was about a graph that is retried: the host reads members for one of them.
    pub has_retried: bool,
}

/// State that this shard keeps about another shard.
pub(crate) struct Peer {
    pub record: PeerRecord,
    /// Not confirmed, in order.
    pub outbox: VecDeque<OutboxRecord>,
}

impl Peer {
    pub(crate) fn new(record: PeerRecord) -> Self {
        Self {
            record,
            outbox: VecDeque::new(),
        }
    }

    /// Whether the message that waits under this number bears another mark than this; 0 is no mark.
    pub(crate) fn has_another(&self, number: u64, tag: u64) -> bool {
        let mut waiting = self.outbox.iter();
        let ours = waiting.find(|record| record.number == number);
        tag != 0 && ours.is_some_and(|record| record.tag != tag)
    }
}

/// The edges that lead to one peer, and how far this shard is with asking about them. Not stored: after a start it
/// begins again.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// The dependents and their slots; never empty.
    places: BTreeSet<(JobKey, u32)>,
    /// How far this round has come; `None` between two of them.
    reached: Option<(JobKey, u32)>,
    /// When the next question may be asked.
    due_at: Elapsed,
    began_at: Elapsed,
    /// When the last answer of this round came, and of the one before.
    answered_at: Option<Timestamp>,
    answered_before_at: Option<Timestamp>,
}

impl Asking {
    /// The dependents and their slots.
    pub(crate) fn places(&self) -> &BTreeSet<(JobKey, u32)> {
        &self.places
    }

    /// Whether it is time for the next question.
    pub(crate) fn is_due(&self, now: Now) -> bool {
        self.due_at <= now.elapsed
    }

    /// Those that the next question is about.
    pub(crate) fn next(&self) -> impl Iterator<Item = &(JobKey, u32)> + '_ {
        let after = self.reached.map_or(Bound::Unbounded, Bound::Excluded);
        self.places.range((after, Bound::Unbounded)).take(ASKED_MAX)
    }

    /// A question was answered, up to a place; false if the same answer came before.
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

    /// Nothing is left to ask in this round: the next one begins in time. To be called whenever that may be so.
    fn end_round_if_over(&mut self) {
        if self.reached.is_some() && self.next().next().is_none() {
            self.reached = None;
            self.due_at = self.due_at.max(self.began_at.after(ASK_EVERY));
        }
    }

    /// When this edge was asked about.
    pub(crate) fn asked_at(&self, place: (JobKey, u32)) -> Option<Timestamp> {
        match self.reached {
            Some(reached) if place > reached => self.answered_before_at,
            _ => self.answered_at,
        }
    }
}

impl Peers {
    /// A job waits for one elsewhere from now on.
    pub(crate) fn add_edge(&mut self, now: Now, place: (JobKey, u32), edge: RemoteEdge) {
        let asking = self
            .asking
            .entry(edge.dependency.shard.clone())
            .or_default();
        if asking.places.is_empty() {
            asking.due_at = now.elapsed.after(ASK_EVERY);
        }
        asking.places.insert(place);
        self.up.insert(place, edge);
    }

    pub(crate) fn remove_edge(&mut self, place: (JobKey, u32)) -> Option<RemoteEdge> {
        let edge = self.up.remove(&place)?;
        if let Some(asking) = self.asking.get_mut(&edge.dependency.shard) {
            asking.places.remove(&place);
            asking.end_round_if_over();
            if asking.places.is_empty() {
                self.asking.remove(&edge.dependency.shard);
            }
        }
        Some(edge)
    }

    /// A job elsewhere waits for one here; false if that was known.
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

    /// The jobs, live or finished, that this slot of another shard's job waits for. It is one, unless that shard
    /// forgot the job that had the number first.
    pub(crate) fn dependencies_of(
        &self,
        (shard, key, slot): &(ShardId, JobKey, u32),
    ) -> impl Iterator<Item = JobKey> + '_ {
        let first = (shard.clone(), *key, *slot, JobKey(0));
        let last = (shard.clone(), *key, *slot, JobKey(u64::MAX));
        let range = self.dependencies.range(first..=last);
        range.map(|(.., dependency)| *dependency)
    }

    /// The peer has started again since it was last heard: it is asked soon.
    pub(crate) fn ask_soon(&mut self, now: Now, peer: &ShardId) {
        if let Some(asking) = self.asking.get_mut(peer) {
            asking.due_at = asking.due_at.min(now.elapsed.after(ASK_PAUSE));
        }
    }
}
