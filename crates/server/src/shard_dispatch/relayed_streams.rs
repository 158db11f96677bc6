//! Streams of workers and of batches in a cluster: they end at this node, and outlive moves of their shards.

use std::sync::Arc;

use axum::body::Body;
use ganger_access::Identity;
use ganger_dialect_grpc::{Connect, ENQUEUE_STREAM, EnqueueRelay, WORK, WorkerRelay};
use http::{Request, Response};

use super::ShardDispatch;
use crate::security::Protocol;

/// Relays streams to whichever node owns their shard.
pub(crate) struct StreamRelays {
    /// Relays the streams of workers.
    pub(crate) workers: WorkerRelay,
    /// Relays the streams that submit batches.
    pub(crate) batches: EnqueueRelay,
}

impl ShardDispatch {
    /// Whether a request opens a stream to a shard that may move.
    pub(super) fn is_relayed(&self, protocol: Protocol, path: &str) -> bool {
        protocol == Protocol::Grpc
            && [WORK, ENQUEUE_STREAM].contains(&path)
            && self.router.topology().owners().is_some()
    }

    /// Relays a stream to whichever node owns its shard.
    pub(super) async fn relay_stream(
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
        if request.uri().path() == WORK {
            return self.relays.workers.answer(request, connect).await;
        }
        self.relays.batches.answer(request, connect).await
    }
}
