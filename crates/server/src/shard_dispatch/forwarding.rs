//! Requests that are forwarded to the server of another shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt as _;
use ganger_access::{BytesInProcess, Identity};
use ganger_dialect_grpc::{self as grpc, ENQUEUE_STREAM, WORK, is_read};
use ganger_dialect_http::{self as http_api, Problem};
use ganger_router::{RouteError, Router};
use ganger_types::ShardId;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyStream, StreamBody};
use hyper::body::Frame;

use super::routing::SHARD;
use super::{REFLECTION, ShardDispatch, kept_body};
use crate::impersonation::{self, ON_BEHALF};
use crate::port_handler::refuse;
use crate::security::Protocol;

/// Header with the server that forwarded a request: its default shard, or the node of a cluster. A forwarded request is
/// not forwarded again, except in a cluster to a third node.
pub(super) const FORWARDED_BY: &str = "ganger-forwarded-by";
/// Header with the number of nodes of a cluster that have forwarded a request.
const HOPS: &str = "ganger-hops";
/// Header with the version of the places of shards that a node of a cluster has seen.
pub(super) const PLACES: &str = "ganger-places";
/// Largest number of times that a request is forwarded: nodes may disagree for a moment on who owns a shard.
pub(super) const HOPS_MAX: u8 = 3;
/// Trailer with the status of a gRPC call.
pub(super) const STATUS: &str = "grpc-status";
/// Methods whose caller sends without limit. The end of the caller's messages decides nothing, so a stopping server
/// ends them itself. Graph submission is not among them: half a graph would be taken for the whole.
const CLIENT_STREAMS: [&str; 3] = [WORK, ENQUEUE_STREAM, REFLECTION];
/// Methods of gRPC that may last as long as the caller likes, and change nothing when they end early.
const LONG_CALLS: [&str; 6] = [
    WORK,
    REFLECTION,
    "/ganger.v1.Leases/Lease",
    "/ganger.v1.Jobs/Wait",
    "/ganger.v1.Jobs/FollowLog",
    "/ganger.v1.Insight/Events",
];
/// Headers about the page in a browser; the first server has checked them.
const BROWSER_HEADERS: [HeaderName; 3] = [
    header::ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-mode"),
];

/// Whether the server ended the caller's side of a stream early.
type ClientEnded = Arc<AtomicBool>;

/// Adds headers to a request for the server of another shard: the shard, this server, and the caller.
pub(crate) fn add_forwarding_headers(
    router: &Router,
    headers: &mut HeaderMap,
    shard: &ShardId,
    caller: &Identity,
) {
    for name in BROWSER_HEADERS {
        headers.remove(name);
    }
    let mut by = router.home().as_str().to_owned();
    if let Some(owners) = router.topology().owners() {
        headers.insert(HOPS, HeaderValue::from(u16::from(hops(headers)) + 1));
        let state = owners.now();
        headers.insert(PLACES, HeaderValue::from(state.version));
        by.clone_from(&state.node);
    }
    for (name, text) in [(SHARD, shard.as_str()), (FORWARDED_BY, &by)] {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    }
    if let Some(value) = impersonation::write(caller) {
        headers.insert(ON_BEHALF, value);
    }
}

impl ShardDispatch {
    /// Adds headers to a request for the server of another shard; see [`add_forwarding_headers`].
    pub(crate) fn add_forwarding_headers(
        &self,
        headers: &mut HeaderMap,
        shard: &ShardId,
        caller: &Identity,
    ) {
        add_forwarding_headers(&self.router, headers, shard, caller);
    }

    /// Forwards a request to the server of another shard.
    pub(crate) async fn forward_request(
        &self,
        protocol: Protocol,
        shard: &ShardId,
        request: Request<Body>,
        caller: &Identity,
    ) -> Response<Body> {
        let forwarded = self.try_forward(protocol, shard, request, caller).await;
        forwarded.unwrap_or_else(|error| self.unanswered(protocol, &error))
    }

    /// Forwards a request. If no answer comes, returns the reason, and the request if it may be sent again: nothing of it
    /// was sent, or it only reads, or it does nothing twice (S40).
    pub(crate) async fn try_forward_kept(
        &self,
        protocol: Protocol,
        shard: &ShardId,
        request: Request<Body>,
        caller: &Identity,
    ) -> Result<Response<Body>, (RouteError, Option<Request<Body>>)> {
        let (head, body) = request.into_parts();
        let is_harmless = !may_change(protocol, &head) || is_repeatable(protocol, &head);
        let counted = head.extensions.get::<BytesInProcess>().cloned();
        let may_have_key = may_have_key(protocol, &head);
        let is_copied = is_harmless || may_have_key;
        let (kept, body) = kept_body::keep(body, is_copied.then(|| counted.unwrap_or_default()));
        let passed = Request::from_parts(head.clone(), body);
        let forwarded = self.try_forward(protocol, shard, passed, caller).await;
        forwarded.map_err(|error| {
            let may_repeat = !matches!(error, RouteError::OutcomeUnknown { .. })
                || is_harmless
                || (may_have_key && kept.is_copy(|body| has_key(protocol, &head, body)));
            let body = may_repeat.then(|| kept.take()).flatten();
            (error, body.map(|body| Request::from_parts(head, body)))
        })
    }

    /// Forwards a request to the server of another shard.
    ///
    /// # Errors
    /// If the server could not be reached, or gave no answer to a change.
    async fn try_forward(
        &self,
        protocol: Protocol,
        shard: &ShardId,
        mut request: Request<Body>,
        caller: &Identity,
    ) -> Result<Response<Body>, RouteError> {
        // A stream is passed on as it arrives: nothing of it is kept here, but for a copy that counts itself.
        if let Some(in_process) = request.extensions().get::<BytesInProcess>() {
            in_process.set(0);
        }
        let is_reading = request.method() == Method::GET;
        let is_waiting = LONG_CALLS.contains(&request.uri().path());
        let is_submitting = request.uri().path() == ENQUEUE_STREAM;
        // The caller's connection delays a stop until its side of the exchange has ended too.
        let mut cut = ClientEnded::default();
        if CLIENT_STREAMS.contains(&request.uri().path()) {
            request = request.map(|body| {
                let (body, when) = self.cut_at_stop(body);
                cut = when;
                body
            });
        }
        let (head, body) = request.into_parts();
        let may_change = may_change(protocol, &head);
        request = Request::from_parts(head, body);
        self.add_forwarding_headers(request.headers_mut(), shard, caller);
        self.forwarded.count.fetch_add(1, Ordering::Relaxed);
        let answer = self.router.forward(shard, request);
        let answer = tokio::select! {
            answer = answer => answer,
            // A caller that only reads, perhaps for long, can retry; a change is waited for.
            () = self.stopping.cancelled(), if is_reading || is_waiting => {
                let problem = Problem::new("unavailable", "the server is stopping: try again");
                return Ok(refuse(protocol, &problem));
            }
        };
        let response = match answer {
            Ok(response) => response.map(Body::new),
            Err(RouteError::OutcomeUnknown { shard, reason }) if !may_change => {
                return Err(RouteError::Unreachable { shard, reason });
            }
            Err(error) => return Err(error),
        };
        if is_unknown_there(&response) {
            let error = RouteError::Unreachable {
                shard: shard.clone(),
                reason: "its server does not accept the token or certificate of this one: see `peer_token_file` and docs/shards.md".to_owned(),
            };
            return Ok(self.unanswered(protocol, &error));
        }
        if is_waiting {
            return Ok(response.map(|body| self.until_stopping(body)));
        }
        if is_submitting {
            return Ok(response.map(|body| end_with_retry(body, cut)));
        }
        if is_reading {
            return Ok(response.map(|body| self.cut_answer_at_stop(body)));
        }
        Ok(response)
    }

    /// Returns the frames of a gRPC response until the server stops; then a status that asks the caller to retry.
    fn until_stopping(&self, body: Body) -> Body {
        let stopping = self.stopping.clone();
        let stopped = stopping.clone();
        let last = async move {
            stopped
                .is_cancelled()
                .then(|| Ok(Frame::trailers(retry_trailers())))
        };
        let frames = BodyStream::new(body)
            .take_until(stopping.cancelled_owned())
            .chain(futures::stream::once(last).filter_map(std::future::ready));
        Body::new(StreamBody::new(frames))
    }

    /// Returns the frames of an answer until the server stops. Its end is then missing, and its connection or stream is
    /// broken off, so that the reader does not take what came for the whole.
    fn cut_answer_at_stop(&self, body: Body) -> Body {
        let stopping = self.stopping.clone();
        let stopped = stopping.clone();
        let last = async move {
            let words = "the answer is incomplete: the server stops";
            stopped.is_cancelled().then(|| Err(axum::Error::new(words)))
        };
        let frames = BodyStream::new(body)
            .take_until(stopping.cancelled_owned())
            .chain(futures::stream::once(last).filter_map(std::future::ready));
        Body::new(StreamBody::new(frames))
    }

    /// Returns the caller's messages until the server stops; then ends them as if the caller had.
    pub(super) fn cut_at_stop(&self, body: Body) -> (Body, ClientEnded) {
        let cut = ClientEnded::default();
        let (stopping, set) = (self.stopping.clone(), Arc::clone(&cut));
        let stop = async move {
            stopping.cancelled().await;
            set.store(true, Ordering::Relaxed);
        };
        let frames = BodyStream::new(body).take_until(Box::pin(stop));
        (Body::new(StreamBody::new(frames)), cut)
    }

    /// Returns the response to a request that got no answer from the server of its shard.
    pub(crate) fn unanswered(&self, protocol: Protocol, error: &RouteError) -> Response<Body> {
        self.forwarded.failed.fetch_add(1, Ordering::Relaxed);
        let problem = if matches!(error, RouteError::OutcomeUnknown { .. }) {
            Problem::new("outcome_unknown", error.to_string())
        } else {
            let problem = Problem::new("shard_unreachable", error.to_string());
            problem.retry_after(Duration::from_secs(1))
        };
        refuse(protocol, &problem)
    }
}

/// Returns the frames of a response to batches of jobs. Everything that reached the other server is answered first;
/// then, if more may have followed, the caller is told that the stream was cut.
fn end_with_retry(body: Body, cut: ClientEnded) -> Body {
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame?;
        let is_good_end = frame
            .trailers_ref()
            .is_some_and(|trailers| trailers.get(STATUS).is_some_and(|status| status == "0"));
        if is_good_end && cut.load(Ordering::Relaxed) {
            return Ok::<_, axum::Error>(Frame::trailers(retry_trailers()));
        }
        Ok(frame)
    });
    Body::new(StreamBody::new(frames))
}

/// Returns the trailers that ask the caller to retry.
pub(super) fn retry_trailers() -> HeaderMap {
    let status = [
        (STATUS, "14"),
        ("grpc-message", "the server is stopping: try again"),
    ];
    let status = status.map(|(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    });
    status.into_iter().collect()
}

/// Returns how many nodes have forwarded a request; the largest number if that cannot be read.
pub(super) fn hops(headers: &HeaderMap) -> u8 {
    if headers.contains_key(HOPS) {
        number(headers, HOPS).unwrap_or(HOPS_MAX)
    } else {
        0
    }
}

/// Returns the number in a header; `None` if there is none.
pub(super) fn number<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<T> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Whether a request may change something: without a response its outcome is then unknown.
fn may_change(protocol: Protocol, head: &Parts) -> bool {
    if protocol == Protocol::Grpc {
        return !is_read(head.uri.path());
    }
    !head.method.is_safe()
}

/// Whether a request does nothing twice if it is sent again, whatever its body is.
fn is_repeatable(protocol: Protocol, head: &Parts) -> bool {
    if protocol == Protocol::Grpc {
        return grpc::is_report(head.uri.path());
    }
    http_api::is_repeatable(head)
}

/// Whether a request may have an idempotency key in its body.
fn may_have_key(protocol: Protocol, head: &Parts) -> bool {
    if protocol == Protocol::Grpc {
        return grpc::is_submission(head.uri.path());
    }
    http_api::is_graph(head)
}

/// Whether the body of such a request has an idempotency key: it does nothing twice then.
fn has_key(protocol: Protocol, head: &Parts, body: &[u8]) -> bool {
    if protocol == Protocol::Grpc {
        return grpc::has_key(head.uri.path(), body);
    }
    http_api::has_key(body)
}

/// Whether the other server does not know this one, which is not the caller's fault.
fn is_unknown_there(response: &Response<Body>) -> bool {
    let status = response.headers().get(STATUS);
    response.status() == StatusCode::UNAUTHORIZED || status.is_some_and(|status| status == "16")
}
