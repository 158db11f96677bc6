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
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use futures::future::BoxFuture;
use ganger_access::BytesInProcess;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, header};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tonic::codec::{BufferSettings, EncodeBody, SingleMessageCompressionOverride, Streaming};
use tonic::{Code, Status};
use tonic_prost::{ProstDecoder, ProstEncoder};

use envelope::{ServerEnvelope, WorkerEnvelope};
use pump::Pump;

/// Path of a worker's stream.
pub const WORK: &str = "/ganger.v1.Leases/Work";
/// Headers that concern the compression of messages: inner streams have none.
const COMPRESSION: [HeaderName; 2] = [
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
];
/// Number of messages to the worker, or to the shard, that wait to be sent.
const WAITING_MAX: usize = 1;

/// Maximum bytes of a message of the worker: the largest payload, and room for the rest.
const MESSAGE_BYTES_MAX: usize = crate::REQUEST_BYTES + ganger_types::limits::PAYLOAD_BYTES_MAX;

/// Opens an inner stream: passes the request to whichever node owns the shard now.
pub type Connect = Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

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
        for name in COMPRESSION {
            head.headers.remove(name);
        }
        let (decoder, settings) = (ProstDecoder::new(BufferSettings::default()), None);
        let worker = Streaming::new_request(decoder, body, settings, Some(MESSAGE_BYTES_MAX));
        let (messages, outgoing) = mpsc::channel(WAITING_MAX);
        let (unsent, returned) = mpsc::unbounded_channel();
        let (opened, is_open) = oneshot::channel();
        let inner = InnerStreams {
            head,
            connect,
            reopened: Arc::clone(&self.reopened),
        };
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

fn respond(messages: pump::ToWorker) -> Response<Body> {
    let (encoder, none) = (ProstEncoder::new(BufferSettings::default()), None);
    let uncompressed = SingleMessageCompressionOverride::default();
    let body = EncodeBody::new_server(encoder, messages, none, uncompressed, None);
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

/// An inner stream: messages of the shard.
struct Inner {
    messages: Streaming<ServerEnvelope>,
    /// Set when the connection broke, which is not an end that the shard chose.
    is_broken: Broken,
}

type Broken = Arc<std::sync::atomic::AtomicBool>;

/// What opens the inner streams of one worker.
struct InnerStreams {
    head: Parts,
    connect: Connect,
    reopened: Arc<AtomicU64>,
}

impl InnerStreams {
    /// Opens an inner stream for messages to the shard.
    fn open(
        &self,
        messages: mpsc::Receiver<WorkerEnvelope>,
    ) -> BoxFuture<'static, Result<Inner, Status>> {
        let encoder = ProstEncoder::new(BufferSettings::default());
        let messages = tokio_stream::wrappers::ReceiverStream::new(messages);
        let messages = futures::StreamExt::map(messages, Ok);
        let body = EncodeBody::new_client(encoder, messages, None, None);
        let request = Request::from_parts(self.head.clone(), Body::new(body));
        let answer = (self.connect)(request);
        Box::pin(async move { read(answer.await) })
    }

    fn count_reopened(&self) {
        self.reopened.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads the answer to the request for an inner stream.
fn read(response: Response<Body>) -> Result<Inner, Status> {
    if let Some(status) = Status::from_header_map(response.headers())
        && status.code() != Code::Ok
    {
        return Err(status);
    }
    let is_broken = Broken::default();
    let (code, broken) = (response.status(), Arc::clone(&is_broken));
    let body = http_body_util::BodyExt::map_err(response.into_body(), move |error| {
        broken.store(true, Ordering::Relaxed);
        error
    });
    let decoder = ProstDecoder::new(BufferSettings::default());
    Ok(Inner {
        messages: Streaming::new_response(decoder, body, code, None, Some(usize::MAX)),
        is_broken,
    })
}

#[cfg(test)]
mod tests;
