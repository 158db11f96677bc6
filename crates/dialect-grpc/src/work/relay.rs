//! Worker streams that outlive a move of their shard to another node of the cluster.
//!
//! The stream of a worker ends at the node that the worker is connected to. Inside, this node has an inner stream to
//! the shard: in this process, or at the node that owns it. When the shard moves or its node dies, the inner stream ends,
//! and is opened again at the new owner, with the credits that the worker has left and the reports that were not
//! answered (`state`). The worker sees a pause.

mod envelope;
mod pump;
mod state;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::body::Body;
use ganger_access::BytesInProcess;
use http::{Request, Response};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::inner_stream::{Connect, InnerStreams, client_messages, respond};
use pump::Pump;

/// Path of a worker's stream.
pub const WORK: &str = "/ganger.v1.Leases/Work";
/// Number of messages to the worker, or to the shard, that wait to be sent.
const WAITING_MAX: usize = 1;

/// Relays the streams of workers to their shards.
pub struct WorkerRelay {
    /// Becomes true when this server is about to stop: workers are told.
    pub draining: watch::Receiver<bool>,
    /// Cancelled when this server stops: streams end.
    pub stopping: CancellationToken,
    /// Number of inner streams that were opened again.
    pub reopened: Arc<AtomicU64>,
}

impl WorkerRelay {
    /// Answers the request that opens a worker's stream. It is relayed until the worker or the shard ends it, the
    /// server stops, or the shard cannot be reached for half a minute.
    pub async fn answer(&self, request: Request<Body>, connect: Connect) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let in_process = head.extensions.remove::<BytesInProcess>();
        let worker = client_messages(body);
        let (messages, outgoing) = mpsc::channel(WAITING_MAX);
        let (unsent, returned) = mpsc::unbounded_channel();
        let (opened, is_open) = oneshot::channel();
        let inner = InnerStreams::new(head, connect, Arc::clone(&self.reopened));
        let pump = Pump::new(inner, worker, messages, in_process.unwrap_or_default());
        let (draining, stopping) = (self.draining.clone(), self.stopping.clone());
        tokio::spawn(pump.run(opened, returned, draining, stopping));
        match is_open.await {
            Ok(Ok(())) => respond(pump::ToWorker::new(outgoing, unsent)),
            Ok(Err(status)) => status.into_http(),
            // The task has ended without a word, which is a fault of this program.
            Err(_) => Status::internal("the stream cannot be opened").into_http(),
        }
    }
}

#[cfg(test)]
mod tests;
