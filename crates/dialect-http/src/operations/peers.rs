//! Operations on other shards.

use ganger_access::Right;
use http::Method;

use super::{Operation, operation};
use crate::resource::numbers::Done;
use crate::resource::peers;
use crate::resource::peers::{OutboxDoc, PeersDoc};

pub(super) fn about_peers() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/peers",
            "listPeers",
            Right::OBSERVE.on_server(),
            "Lists the other shards and the number of messages for them.",
            peers::list,
        )
        .reply::<PeersDoc>(),
        operation(
            M::GET,
            "/api/v1/peers/{shard}/outbox",
            "listOutbox",
            Right::OBSERVE.on_server(),
            "Lists the messages that wait for a shard.",
            peers::outbox,
        )
        .query(super::PAGE)
        .reply::<OutboxDoc>(),
        operation(
            M::POST,
            "/api/v1/peers/{shard}/reconcile",
            "reconcilePeer",
            Right::OPERATE.on_server(),
            "Resumes traffic with a shard after a store was restored.",
            peers::reconcile,
        )
        .reply::<Done>(),
    ]
}
