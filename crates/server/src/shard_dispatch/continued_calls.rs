//! Long calls over gRPC that outlive a move of their shard to another node of the cluster, and the death of its owner:
//! waits, logs, and streams of events.
//!
//! This node sends the request to the owner of the shard and reads what comes back, so it knows where to go on
//! ([`LongCall`]). When the answer breaks off, it sends the request to the next owner with that place.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::{Body, Bytes};
use futures::StreamExt as _;
use ganger_access::{CONTINUE, Identity};
use ganger_dialect_grpc::{LongCall, message_bytes, whole_messages};
use ganger_dialect_http::Problem;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use hyper::body::Frame;
use tokio::time::Instant;

use super::ShardDispatch;
use super::continued::{AWAY_MAX, BEGUN_AFTER, MOVED_AGAIN_MIN};
use super::forwarding::{STATUS, retry_trailers};
use crate::port_handler::refuse;
use crate::security::Protocol;

/// Largest request of a long call in bytes: it names at most ten thousand jobs.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Status of gRPC for a shard that is away: its node stops, or it moves.
const UNAVAILABLE: &[u8] = b"14";
/// Status of gRPC for an answer that has ended well.
const OK: &[u8] = b"0";
/// Headers that are about the messages of the first request and of its answer, which this node reads.
const ENCODINGS: [&str; 2] = ["grpc-encoding", "grpc-accept-encoding"];

impl ShardDispatch {
    /// Whether the answer to a call is a long one of a shard that may move.
    pub(super) fn is_continued_call(&self, protocol: Protocol, head: &Parts) -> bool {
        protocol == Protocol::Grpc
            && LongCall::is_long(head.uri.path())
            && self.router.topology().owners().is_some()
    }

    /// Answers a call whose answer may go on at another node.
    pub(super) async fn answer_continued_call(
        self: &Arc<Self>,
        mut head: Parts,
        body: Body,
        caller: Identity,
    ) -> Response<Body> {
        let Ok(body) = axum::body::to_bytes(body, REQUEST_BYTES_MAX).await else {
            let words =
                format!("the request is cut off, or has more than {REQUEST_BYTES_MAX} bytes");
            return refuse(Protocol::Grpc, &Problem::new("invalid_value", words));
        };
        let Some(call) = LongCall::read(head.uri.path(), &body) else {
            // The dialect says what is wrong with it, or reads it compressed.
            let request = Request::from_parts(head, Body::from(body));
            return self.answer_at_shard(Protocol::Grpc, request, caller).await;
        };
        for name in ENCODINGS {
            head.headers.remove(name);
        }
        head.headers.remove(header::CONTENT_LENGTH);
        head.headers.insert(CONTINUE, HeaderValue::from_static(""));
        let asked = Asked {
            dispatch: Arc::clone(self),
            head,
            caller,
        };
        if call.is_wait() {
            return asked.wait(call).await;
        }
        asked.follow(call).await
    }
}

/// A call whose answer may go on at another node.
struct Asked {
    dispatch: Arc<ShardDispatch>,
    head: Parts,
    caller: Identity,
}

impl Asked {
    /// Sends the request to whichever node owns the shard now.
    async fn send(&self, call: &mut LongCall) -> Response<Body> {
        let request = Request::from_parts(self.head.clone(), Body::from(call.body()));
        self.dispatch
            .answer_at_shard(Protocol::Grpc, request, self.caller.clone())
            .await
    }

    fn is_stopping(&self) -> bool {
        self.dispatch.stopping.is_cancelled()
    }

    /// Pauses before the request is sent again. A shard that has failed ends answers as soon as they begin, until its node
    /// has noticed.
    async fn pause_if_quick(&self, began: Instant) {
        if began.elapsed() < MOVED_AGAIN_MIN {
            self.dispatch.wait_to_retry(Instant::now() + AWAY_MAX).await;
        }
    }

    fn note_move(&self) {
        let moved = &self.dispatch.forwarded.answers_moved;
        moved.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the end of a job, at one node after the other.
    async fn wait(&self, mut call: LongCall) -> Response<Body> {
        loop {
            let sent = Instant::now();
            let response = self.send(&mut call).await;
            let had_begun = sent.elapsed() > BEGUN_AFTER;
            let (head, body) = response.into_parts();
            let Ok(whole) = body.collect().await else {
                if call.is_too_early() && !self.is_stopping() {
                    self.pause_if_quick(sent).await;
                    continue;
                }
                let words = "the answer of the shard's node broke off: try again";
                let problem = Problem::new("unavailable", words);
                return refuse(Protocol::Grpc, &problem);
            };
            let trailers = whole.trailers().cloned().unwrap_or_default();
            let message = whole.to_bytes();
            call.note(&message);
            let is_away = is_away(&head.headers) || is_away(&trailers);
            let is_early = call.is_too_early() && (!is_away || had_begun);
            if is_early && (is_away || is_good(&trailers)) && !self.is_stopping() {
                self.note_move();
                self.pause_if_quick(sent).await;
                continue;
            }
            let end = (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)));
            let message = (!message.is_empty()).then(|| Ok::<_, axum::Error>(Frame::data(message)));
            let frames = futures::stream::iter(message.into_iter().chain(end));
            return Response::from_parts(head, Body::new(StreamBody::new(frames)));
        }
    }

    /// Passes on a stream, and what follows it at other nodes.
    async fn follow(self, mut call: LongCall) -> Response<Body> {
        let response = self.send(&mut call).await;
        if response.headers().contains_key(STATUS) {
            return response;
        }
        let (head, body) = response.into_parts();
        let answer = Answer {
            asked: self,
            call,
            frames: BodyStream::new(body),
            part: Vec::new(),
            began: Instant::now(),
            is_over: false,
        };
        let frames = futures::stream::unfold(answer, |mut answer| async move {
            let frame = answer.next().await?;
            Some((frame, answer))
        });
        Response::from_parts(head, Body::new(StreamBody::new(frames)))
    }
}

/// A stream, with the node that sends it now.
struct Answer {
    asked: Asked,
    call: LongCall,
    frames: BodyStream<Body>,
    /// Beginning of a message whose end has not come.
    part: Vec<u8>,
    /// Time at which this node began to answer.
    began: Instant,
    /// Whether the caller was told to go on at another node.
    is_over: bool,
}

impl Answer {
    /// Returns the next frame for the caller; `None` at the end.
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, axum::Error>> {
        if self.is_over {
            return None;
        }
        let stopping = self.asked.dispatch.stopping.clone();
        loop {
            let next = tokio::select! {
                biased;
                next = self.frames.next() => next,
                // The caller goes on at another node.
                () = stopping.cancelled() => {
                    self.is_over = true;
                    return Some(Ok(Frame::trailers(retry_trailers())));
                }
            };
            let end = match next? {
                Ok(frame) => match frame.into_data() {
                    Ok(data) => match self.take(&data) {
                        Some(messages) => return Some(Ok(Frame::data(messages))),
                        None => continue,
                    },
                    Err(last) if last.trailers_ref().is_some_and(is_away) => Ok(last),
                    Err(last) => return Some(Ok(last)),
                },
                // Its node has died.
                Err(error) => Err(error),
            };
            if self.asked.is_stopping() {
                return Some(end);
            }
            if let Err(refusal) = self.go_on().await {
                return Some(Ok(Frame::trailers(refusal)));
            }
        }
    }

    /// Takes bytes of the answer; returns the messages that are whole now, if there are any.
    fn take(&mut self, data: &[u8]) -> Option<Bytes> {
        self.part.extend_from_slice(data);
        let whole = whole_messages(&self.part);
        let rest = self.part.split_off(whole);
        let messages = std::mem::replace(&mut self.part, rest);
        let mut left = &messages[..];
        while let Some((message, after)) =
            message_bytes(left).and_then(|bytes| left.split_at_checked(bytes))
        {
            self.call.note(message);
            left = after;
        }
        (!messages.is_empty()).then(|| Bytes::from(messages))
    }

    /// Goes on with the stream at the next owner; the trailers of its refusal if it does not.
    async fn go_on(&mut self) -> Result<(), HeaderMap> {
        self.part.clear();
        self.asked.pause_if_quick(self.began).await;
        let until = Instant::now() + AWAY_MAX;
        loop {
            let response = self.asked.send(&mut self.call).await;
            let (mut head, body) = response.into_parts();
            if !head.headers.contains_key(STATUS) {
                self.asked.note_move();
                (self.frames, self.began) = (BodyStream::new(body), Instant::now());
                return Ok(());
            }
            if !is_away(&head.headers) || Instant::now() >= until || self.asked.is_stopping() {
                for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
                    head.headers.remove(name);
                }
                return Err(head.headers);
            }
            self.asked.dispatch.wait_to_retry(until).await;
        }
    }
}

/// Whether a status says that the shard is away: its node stops, or it moves.
fn is_away(headers: &HeaderMap) -> bool {
    has_status(headers, UNAVAILABLE)
}

fn is_good(trailers: &HeaderMap) -> bool {
    has_status(trailers, OK)
}

fn has_status(headers: &HeaderMap, status: &[u8]) -> bool {
    let said = headers.get(STATUS);
    said.is_some_and(|said| said.as_bytes() == status)
}
