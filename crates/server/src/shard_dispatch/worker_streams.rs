//! Streams of workers in a cluster: they end at this node, and outlive moves of their shards.

use std::sync::Arc;

use axum::body::Body;
use ganger_access::Identity;
use ganger_dialect_grpc::{Connect, WORK};
use http::{Request, Response};

use super::ShardDispatch;
use crate::security::Protocol;

impl ShardDispatch {
    /// Whether a request opens a worker's stream to a shard that may move.
    pub(super) fn is_relayed(&self, protocol: Protocol, path: &str) -> bool {
        protocol == Protocol::Grpc && path == WORK && self.router.topology().owners().is_some()
    }

    /// Relays a worker's stream to whichever node owns its shard.
    pub(super) async fn relay_worker(
        self: &Arc<Self>,
        request: Request<Body>,
        caller: Identity,
    ) -> Response<Body> {
        let dispatch = Arc::clone(self);
        let connect: Connect = Arc::new(move |request| {
            let (dispatch, caller) = (Arc::clone(&dispatch), caller.clone());
            let answer = async move {
                dispatch
                    .answer_at_shard(Protocol::Grpc, request, caller)
                    .await
            };
            Box::pin(answer)
        });
        self.worker_relay.answer(request, connect).await
    }
}
