//! Records about other shards, messages to them, and their jobs that wait for a job of this shard.
//!
//! Messages are also sent in this encoding, so input from peers is decoded with the same checks as stored bytes.

use ganger_types::{
    Dependent, GraphRetry, Message, MessageResult, OutboxRecord, PeerRecord, RetriedGraph,
};

use super::field::{Bits, choice, fields, record};

record!("peer", version 1, PeerRecord {
    shard,
    stream_epoch,
    last_sent,
    confirmed,
    received,
    received_tag as Bits,
    received_epoch,
    adopts,
    stopped,
});

record!("dependent", version 1, Dependent { shard, key, slot, id, policy, is_member });

record!("message", version 1, OutboxRecord { to, number, tag as Bits, at, message });

choice!(Message, "says something that this program does not know" {
    1 Ended { namespace, dependency, dependent, slot, outcome, result }
    2 NoSuchJob { namespace, dependency, dependent, slot }
    3 Follow { namespace, dependency, dependent; retries: false }
    4 LetGo { namespace, dependency, dependent, slot, unneeded_in }
    5 Decided { namespace, graph, is_committed }
    6 Inquire { namespace, graph }
    7 CancelGraph { namespace, graph, reason }
    8 Follow { namespace, dependency, dependent; retries: true }
    9 RetryDependent { namespace, dependency, dependent, slot, within }
    10 RetryGraph { namespace, retry }
    11 GoOn { namespace, retry }
});

fields!(RetriedGraph { graph, queue });

fields!(GraphRetry {
    within,
    after,
    before,
    has_changed,
    has_skipped
});

choice!(MessageResult, "carries its result in an unknown way" {
    1 None {}
    2 Stored(key)
    3 Bytes(bytes)
});
