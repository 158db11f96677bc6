//! Conversion of what a shard knows about other shards.

use ganger_proto::v1;

use super::{at, some};
use crate::model::{PeerView, WaitingMessage};

impl From<v1::PeerView> for PeerView {
    fn from(wire: v1::PeerView) -> Self {
        Self {
            shard: wire.shard,
            waiting: wire.waiting,
            oldest_at: wire.oldest_at_us.map(at),
            tries_failed: wire.tries_failed,
            last_error: some(wire.last_error),
            stopped: some(wire.stopped),
            stopped_there: some(wire.stopped_there),
            written: wire.written,
            confirmed: wire.confirmed,
            received: wire.received,
        }
    }
}

impl From<v1::OutboxMessage> for WaitingMessage {
    fn from(wire: v1::OutboxMessage) -> Self {
        Self {
            number: wire.number,
            kind: wire.kind,
            at: at(wire.at_us),
        }
    }
}
