//! Streams to whichever node of a cluster owns a shard, for relays of streams that outlive a move of their shard.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures::future::BoxFuture;
use futures::stream::{Stream, StreamExt as _};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, header};
use prost::Message;
use tokio::time::{Instant, sleep_until};
use tonic::codec::{BufferSettings, EncodeBody, SingleMessageCompressionOverride, Streaming};
use tonic::{Code, Status};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Maximum bytes of a message of a client: the largest payload, and room for the rest.
const MESSAGE_BYTES_MAX: usize = crate::REQUEST_BYTES + ganger_types::limits::PAYLOAD_BYTES_MAX;
/// Headers that concern the compression of messages: inner streams have none.
const COMPRESSION: [HeaderName; 2] = [
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
];

/// Opens an inner stream: passes the request to whichever node owns the shard now.
pub type Connect = Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// Pause before an inner stream is opened again after an attempt that failed.
const RETRY_EVERY: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 200 });
/// Longest time for which a client's stream is kept while its shard cannot be reached.
pub(crate) const AWAY_MAX: Duration = Duration::from_secs(30);

/// A stream to the owner of a shard.
pub(crate) struct InnerStream<M> {
    /// The messages of the shard.
    pub(crate) messages: Streaming<M>,
    /// Set when the connection broke, which is not an end that the shard chose.
    is_broken: Arc<AtomicBool>,
}

/// The shard's side of a relayed stream.
pub(crate) enum Side<M> {
    /// It is being opened.
    Opening(BoxFuture<'static, Result<InnerStream<M>, Status>>),
    /// It is open since this time.
    Open(Box<InnerStream<M>>, Instant),
    /// It is opened again at this time.
    Away(Instant),
}

/// What has happened on the shard's side.
pub(crate) enum FromShard<M> {
    Opened(Box<InnerStream<M>>),
    Message(M),
    /// The inner stream has ended, or could not be opened.
    Ended(Status),
    /// It is time to open it again.
    Again,
}

impl<M> Side<M> {
    /// Waits for what happens on the shard's side.
    pub(crate) async fn next(&mut self) -> FromShard<M> {
        match self {
            Self::Opening(opening) => match opening.await {
                Ok(inner) => FromShard::Opened(Box::new(inner)),
                Err(status) => FromShard::Ended(status),
            },
            Self::Open(inner, _) => match inner.messages.message().await {
                Ok(Some(message)) => FromShard::Message(message),
                Ok(None) => FromShard::Ended(Status::ok("")),
                Err(status) => FromShard::Ended(status),
            },
            Self::Away(until) => {
                sleep_until(*until).await;
                FromShard::Again
            }
        }
    }

    /// Sets the side to a stream that is open now.
    pub(crate) fn set_open(&mut self, inner: Box<InnerStream<M>>) {
        *self = Self::Open(inner, Instant::now());
    }

    /// Waits before the stream is opened again that has ended, or could not be opened.
    pub(crate) fn set_away(&mut self) {
        let now = Instant::now();
        let open_for = match self {
            Self::Open(_, since) => now - *since,
            Self::Opening(_) | Self::Away(_) => Duration::ZERO,
        };
        *self = Self::Away(now + pause_after(open_for));
    }

    /// Whether the connection of the open stream broke.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Self::Open(inner, _) if inner.is_broken.load(Ordering::Relaxed))
    }
}

/// Returns the pause before an inner stream is opened again that was open for so long: none after a move. A node that
/// stops ends streams as soon as they are open.
fn pause_after(open_for: Duration) -> Duration {
    if open_for < RETRY_EVERY {
        RETRY_EVERY
    } else {
        Duration::ZERO
    }
}

/// What opens the inner streams of one client's stream.
pub(crate) struct InnerStreams {
    head: Parts,
    connect: Connect,
    reopened: Arc<AtomicU64>,
}

impl InnerStreams {
    /// Prepares streams with the head of the client's request. `reopened` counts those after the first one.
    pub(crate) fn new(mut head: Parts, connect: Connect, reopened: Arc<AtomicU64>) -> Self {
        for name in COMPRESSION {
            head.headers.remove(name);
        }
        Self {
            head,
            connect,
            reopened,
        }
    }

    /// Opens a stream that sends these messages.
    pub(crate) fn open<A, M>(
        &self,
        messages: impl Stream<Item = A> + Send + 'static,
    ) -> BoxFuture<'static, Result<InnerStream<M>, Status>>
    where
        A: Message + 'static,
        M: Message + Default + 'static,
    {
        let encoder = ProstEncoder::new(BufferSettings::default());
        let body = EncodeBody::new_client(encoder, messages.map(Ok), None, None);
        let request = Request::from_parts(self.head.clone(), Body::new(body));
        let answer = (self.connect)(request);
        Box::pin(async move { read(answer.await) })
    }

    /// Counts a stream that was opened again.
    pub(crate) fn count_reopened(&self) {
        self.reopened.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads the answer to the request for an inner stream.
fn read<M: Message + Default + 'static>(
    response: Response<Body>,
) -> Result<InnerStream<M>, Status> {
    if let Some(status) = Status::from_header_map(response.headers())
        && status.code() != Code::Ok
    {
        return Err(status);
    }
    let is_broken = Arc::<AtomicBool>::default();
    let (code, broken) = (response.status(), Arc::clone(&is_broken));
    let body = http_body_util::BodyExt::map_err(response.into_body(), move |error| {
        broken.store(true, Ordering::Relaxed);
        error
    });
    let decoder = ProstDecoder::new(BufferSettings::default());
    Ok(InnerStream {
        messages: Streaming::new_response(decoder, body, code, None, Some(usize::MAX)),
        is_broken,
    })
}

/// Reads the messages of a client.
pub(crate) fn client_messages<M: Message + Default + 'static>(body: Body) -> Streaming<M> {
    let decoder = ProstDecoder::new(BufferSettings::default());
    Streaming::new_request(decoder, body, None, Some(MESSAGE_BYTES_MAX))
}

/// Answers a client with messages.
pub(crate) fn respond<M, S>(messages: S) -> Response<Body>
where
    M: Message + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let encoder = ProstEncoder::new(BufferSettings::default());
    let uncompressed = SingleMessageCompressionOverride::default();
    let messages: Pin<Box<S>> = Box::pin(messages);
    let body = EncodeBody::new_server(encoder, messages, None, uncompressed, None);
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_ends_at_once_is_not_opened_again_at_once() {
        assert_eq!(pause_after(Duration::ZERO), RETRY_EVERY);
        assert_eq!(pause_after(RETRY_EVERY / 2), RETRY_EVERY);
        assert_eq!(pause_after(Duration::from_secs(9)), Duration::ZERO);
    }
}
