//! The outbox: messages to other shards that are not confirmed yet.

use ganger_types::command::Confirm;
use ganger_types::reply::PeerView;
use ganger_types::{
    Change, JobKey, Message, MessageResult, Now, OutboxRecord, PeerRecord, Reply, ShardId,
};

use crate::engine::Engine;
use crate::turn::Turn;

impl Engine {
    /// Writes a message for another shard.
    pub(crate) fn post(&mut self, to: &ShardId, message: Message, turn: &mut Turn<'_>) {
        debug_assert_ne!(*to, self.shard, "a shard writes to others");
        if let Message::Ended {
            result: MessageResult::Stored(key),
            ..
        } = &message
        {
            *self.peers.pins.entry(*key).or_default() += 1;
        }
        let tag = self.peers.tag;
        let peer = self.peer(to);
        peer.record.last_sent += 1;
        let record = OutboxRecord {
            to: to.clone(),
            number: peer.record.last_sent,
            tag,
            at: turn.now.wall,
            message,
        };
        peer.outbox.push_back(record.clone());
        self.peers.changed.insert(to.clone());
        turn.out.changes.push(Change::PutOutbox(Box::new(record)));
    }

    /// Writes a message unless the same one is waiting, so that repeated questions do not pile up while a peer is
    /// down.
    pub(super) fn post_once(&mut self, to: &ShardId, message: Message, turn: &mut Turn<'_>) {
        let mut waiting = self.peer(to).outbox.iter();
        if !waiting.any(|record| record.message == message) {
            self.post(to, message, turn);
        }
    }

    /// Applies a peer's answer to a batch.
    pub(crate) fn confirm(&mut self, cmd: &Confirm, turn: &mut Turn<'_>) -> Reply {
        if cmd.peer == self.shard {
            return Reply::Done;
        }
        if cmd.up_to > 0 || cmd.stream_epoch > PeerRecord::STREAM_EPOCH_FIRST {
            self.remove_confirmed(cmd, turn);
        }
        if let Some(looked) = &cmd.checked_waits {
            let is_new = self.was_answered(turn.now, &cmd.peer, looked);
            let line = self.peers.known.get(&cmd.peer).map(|peer| &peer.record);
            let is_heard = line.is_none_or(|record| is_of_current_stream(cmd, record));
            if is_new && is_heard {
                self.apply_checked_waits(&cmd.peer, looked, turn);
            }
        }
        Reply::Done
    }

    /// Removes the messages that a peer has applied durably (`rel X3`).
    fn remove_confirmed(&mut self, cmd: &Confirm, turn: &mut Turn<'_>) {
        self.peer(&cmd.peer);
        let Some(peer) = self.peers.known.get_mut(&cmd.peer) else {
            return;
        };
        if !is_of_current_stream(cmd, &peer.record) {
            return;
        }
        let given = peer.record.last_sent;
        // The peer has another message under one of our numbers. The receiver cannot see that in a batch that ends
        // before this number, which looks like a repeat (`rel X6`).
        if cmd.stream_epoch == peer.record.stream_epoch && peer.has_another(cmd.up_to, cmd.tag) {
            peer.record.stopped = Some(format!(
                "shard {} has another message under number {} of ours than the one we have given: this shard went \
                 back in time",
                cmd.peer, cmd.up_to
            ));
            self.peers.changed.insert(cmd.peer.clone());
            return;
        }
        // The peer has a message that we never sent. Only the sender can see that: to the receiver it looks like a
        // late batch (`rel X6`).
        if cmd.stream_epoch > peer.record.stream_epoch || cmd.up_to > given {
            peer.record.stopped = Some(format!(
                "shard {} has {} messages of epoch {} of our stream and we have sent {given} of epoch {}: this shard went \
                 back in time",
                cmd.peer, cmd.up_to, cmd.stream_epoch, peer.record.stream_epoch
            ));
            // After the reconciliation the stream epoch must be larger than any that the peer has seen.
            peer.record.stream_epoch = cmd.stream_epoch;
            self.peers.changed.insert(cmd.peer.clone());
            return;
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
                result: MessageResult::Stored(key),
                ..
            } = done.message
            {
                unpinned.push(key);
            }
            peer.record.confirmed = done.number;
            turn.out
                .changes
                .push(Change::RemoveOutbox(cmd.peer.clone(), done.number));
            self.peers.changed.insert(cmd.peer.clone());
        }
        for key in unpinned {
            self.unpin(key);
        }
    }

    pub(super) fn unpin(&mut self, key: JobKey) {
        if let Some(pins) = self.peers.pins.get_mut(&key) {
            *pins -= 1;
            if *pins == 0 {
                self.peers.pins.remove(&key);
            }
        }
    }

    /// The views of all other shards.
    pub(crate) fn peer_views(&self, now: Now) -> Reply {
        let view = |peer: &super::Peer| PeerView {
            record: peer.record.clone(),
            waiting: u64::try_from(peer.outbox.len()).unwrap_or(u64::MAX),
            oldest_at: peer.outbox.front().map(|record| record.at),
            is_to_ask: self.is_to_ask(now, &peer.record.shard),
        };
        let mut views: Vec<PeerView> = self.peers.known.values().map(view).collect();
        // Jobs here may wait for a shard with which no message was exchanged, because a third shard decided their
        // submission.
        let silent = self.peers.wait_checks.keys();
        let silent = silent.filter(|shard| !self.peers.known.contains_key(shard));
        views.extend(silent.map(|shard| view(&super::Peer::new(PeerRecord::new(shard.clone())))));
        views.sort_by(|one, other| one.record.shard.cmp(&other.record.shard));
        Reply::Peers(views)
    }

    /// The messages that wait for a shard, from a number on.
    pub(crate) fn outbox_page(&self, shard: &ShardId, from: u64, limit: usize) -> Reply {
        let Some(peer) = self.peers.known.get(shard) else {
            return Reply::Outbox(Vec::new());
        };
        // Numbers are consecutive, so the index follows from the number.
        let first = peer.outbox.front().map_or(0, |record| record.number);
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        Reply::Outbox(peer.outbox.iter().skip(skip).take(limit).cloned().collect())
    }
}

/// Whether an answer is about the present stream, not about one from before a reconciliation or a restored backup.
fn is_of_current_stream(cmd: &Confirm, record: &PeerRecord) -> bool {
    cmd.stream_epoch >= record.stream_epoch && record.stopped.is_none()
}
