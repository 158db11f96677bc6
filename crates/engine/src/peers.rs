//! Other shards: edges that lead to their jobs, messages to and from them, submissions that span several.
//!
//! Nothing here waits. What another shard must know is a message in the outbox, written in the same commit as
//! its cause; what another shard says is a command like any other (`rel X1` to `X7`).

mod graph_retry;
mod links;
mod outbox;
mod part;
mod receive;
mod split;
mod waits;

pub use split::{Remainder, ReservedIds, ShardParts, ShardedSubmission};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ganger_types::{
    Change, Dependent, Due, FailurePolicy, Graph, JobId, JobKey, JobRef, Namespace, OutboxRecord,
    PartRecord, PeerRecord, ShardId,
};

use crate::engine::Engine;
use crate::turn::Turn;

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
    pub asking: BTreeMap<ShardId, waits::Asking>,
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
    fn has_another(&self, number: u64, tag: u64) -> bool {
        let mut waiting = self.outbox.iter();
        let ours = waiting.find(|record| record.number == number);
        tag != 0 && ours.is_some_and(|record| record.tag != tag)
    }
}

impl Engine {
    /// Writes the rows of the peers that changed in this turn.
    pub(crate) fn end_peers_turn(&mut self, turn: &mut Turn<'_>) {
        for shard in std::mem::take(&mut self.peers.changed) {
            if let Some(peer) = self.peers.known.get(&shard) {
                turn.out
                    .changes
                    .push(Change::PutPeer(Box::new(peer.record.clone())));
            }
        }
    }

    pub(crate) fn peer(&mut self, shard: &ShardId) -> &mut Peer {
        self.peers
            .known
            .entry(shard.clone())
            .or_insert_with(|| Peer::new(PeerRecord::new(shard.clone())))
    }

    /// Whether a job, live or finished, must stay because of other jobs or of messages on their way (`rel K2`).
    pub(crate) fn is_needed(&self, key: JobKey) -> bool {
        self.edges.user_of(key).is_some() || self.is_needed_elsewhere(key)
    }

    /// Whether another shard, or a submission that is not decided, needs a job of this one.
    pub(crate) fn is_needed_elsewhere(&self, key: JobKey) -> bool {
        self.is_awaited_elsewhere(key)
            || self.peers.pins.contains_key(&key)
            || self.is_needed_by_part(key)
    }
}
