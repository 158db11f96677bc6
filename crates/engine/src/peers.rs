//! Other shards: edges to their jobs, messages to and from them, and submissions over several shards.
//!
//! Nothing here waits for another shard. A message to it goes into the outbox, in the same commit as its cause. A
//! message from it arrives as an ordinary command (`rel X1` to `X7`).

mod graph_retry;
mod links;
mod outbox;
mod part;
mod prefetch;
mod receive;
mod split;
mod waits;

pub use split::{Remainder, ReservedIds, ShardParts, ShardedSubmission};

use ganger_types::{Change, JobKey, PeerRecord, ShardId};

use crate::engine::Engine;
use crate::state::Peer;
use crate::turn::Turn;

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

    /// Whether other jobs or unconfirmed messages need a live or finished job (`rel K2`).
    pub(crate) fn is_needed(&self, key: JobKey) -> bool {
        self.edges.user_of(key).is_some() || self.is_needed_elsewhere(key)
    }

    /// Whether another shard or an undecided submission needs a job of this shard.
    pub(crate) fn is_needed_elsewhere(&self, key: JobKey) -> bool {
        self.is_awaited_elsewhere(key)
            || self.peers.pins.contains_key(&key)
            || self.is_needed_by_part(key)
    }
}
