//! Operations on what waits for other shards.

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
            "Lists the other shards, and what waits for them.",
            peers::list,
        )
        .reply::<PeersDoc>(),
        operation(
            M::GET,
            "/api/v1/peers/{shard}/outbox",
            "listOutbox",
            "Lists the messages that wait for a shard.",
            peers::outbox,
        )
        .query(super::PAGE)
        .reply::<OutboxDoc>(),
        operation(
            M::POST,
            "/api/v1/peers/{shard}/reconcile",
            "reconcilePeer",
            "Takes traffic up again after a store went back in time.",
            peers::reconcile,
        )
        .reply::<Done>(),
    ]
}
