//! Messages to other shards, until those have confirmed them.

use ganger_types::command::Confirm;
use ganger_types::reply::PeerView;
use ganger_types::{
    Carried, Change, JobKey, Message, Now, OutboxRecord, PeerRecord, Reply, ShardId,
};

use crate::Effects;
use crate::engine::Engine;

impl Engine {
    /// Writes a message for another shard.
    pub(crate) fn post(&mut self, now: Now, to: &ShardId, message: Message, out: &mut Effects) {
        debug_assert_ne!(*to, self.shard, "a shard writes to others");
        if let Message::Ended {
            result: Carried::Stored(key),
            ..
        } = &message
        {
            *self.peers.pins.entry(*key).or_default() += 1;
        }
        let tag = self.peers.tag;
        let peer = self.peer(to);
        peer.record.given += 1;
        let record = OutboxRecord {
            to: to.clone(),
            number: peer.record.given,
            tag,
            at: now.wall,
            message,
        };
        peer.outbox.push_back(record.clone());
        self.peers.changed.insert(to.clone());
        out.changes.push(Change::PutOutbox(Box::new(record)));
    }

    /// Writes a message unless the same one waits already: what is asked again and again while a peer is away
    /// makes no pile.
    pub(super) fn post_once(
        &mut self,
        now: Now,
        to: &ShardId,
        message: Message,
        out: &mut Effects,
    ) {
        let mut waiting = self.peer(to).outbox.iter();
        if !waiting.any(|record| record.message == message) {
            self.post(now, to, message, out);
        }
    }

    /// A peer has our messages up to a number, durably: they are done (`rel X3`).
    pub(crate) fn confirm(&mut self, cmd: &Confirm, out: &mut Effects) -> Reply {
        if cmd.peer == self.shard || (cmd.up_to == 0 && cmd.line <= PeerRecord::LINE_FIRST) {
            return Reply::Done;
        }
        self.peer(&cmd.peer);
        let Some(peer) = self.peers.known.get_mut(&cmd.peer) else {
            return Reply::Done;
        };
        if cmd.line < peer.record.line || peer.record.stopped.is_some() {
            // It speaks of other messages than those that wait: from before a reconciliation, or a lost time.
            return Reply::Done;
        }
        let given = peer.record.given;
        // It has what was never given: only the sender can tell that, since to the receiver a letter that
        // comes very late looks the same (`rel X6`).
        if cmd.line > peer.record.line || cmd.up_to > given {
            peer.record.stopped = Some(format!(
                "shard {} has {} messages of line {} of ours and we have given {given} of line {}: this shard went \
                 back in time",
                cmd.peer, cmd.up_to, cmd.line, peer.record.line
            ));
            // The line after the reconciliation shall be newer than all that the peer has seen.
            peer.record.line = cmd.line;
            self.peers.changed.insert(cmd.peer.clone());
            return Reply::Done;
        }
        let mut unpinned = Vec::new();
        while let Some(first) = peer.outbox.front() {
            if first.number > cmd.up_to {
                break;
            }
            let Some(done) = peer.outbox.pop_front() else {
                break;
            };
            if let Message::Ended {
                result: Carried::Stored(key),
                ..
            } = done.message
            {
                unpinned.push(key);
            }
            peer.record.confirmed = done.number;
            out.changes
                .push(Change::RemoveOutbox(cmd.peer.clone(), done.number));
            self.peers.changed.insert(cmd.peer.clone());
        }
        for key in unpinned {
            self.unpin(key);
        }
        Reply::Done
    }

    pub(super) fn unpin(&mut self, key: JobKey) {
        if let Some(pins) = self.peers.pins.get_mut(&key) {
            *pins -= 1;
            if *pins == 0 {
                self.peers.pins.remove(&key);
            }
        }
    }

    /// What is known of other shards.
    pub(crate) fn peer_views(&self) -> Reply {
        let view = |peer: &super::Peer| PeerView {
            record: peer.record.clone(),
            waiting: u64::try_from(peer.outbox.len()).unwrap_or(u64::MAX),
            oldest_at: peer.outbox.front().map(|record| record.at),
        };
        Reply::Peers(self.peers.known.values().map(view).collect())
    }

    /// Messages that wait for a shard, from a number on.
    pub(crate) fn outbox_page(&self, shard: &ShardId, from: u64, limit: usize) -> Reply {
        let Some(peer) = self.peers.known.get(shard) else {
            return Reply::Outbox(Vec::new());
        };
        // Numbers are consecutive, so the place follows from the number.
        let first = peer.outbox.front().map_or(0, |record| record.number);
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        Reply::Outbox(peer.outbox.iter().skip(skip).take(limit).cloned().collect())
    }
}
