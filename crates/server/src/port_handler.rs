//! A port: who may pass, and which dialect a request is for. The main port has two, the QuantumLeap port one.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse as _;
use ganger_access::{Budget, Full, Identity, Owner, Verb};
use ganger_dialect_http::{HostCheck, Peer, Problem};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::bodies::{Kind, REQUEST_BYTES, Readers, RequestBody, ResponseHolds, counted};
use crate::impersonation::ON_BEHALF;
use crate::security::{
    ClientCertificate, PresentedCredentials, Protocol, Require, Security, WatchedRight,
};
use crate::shard_dispatch::{ShardDispatch, through};

/// What anyone may ask of the main port: whether the process lives and can work.
const OPEN_PATHS: &[&str] = &[
    "/healthz",
    "/readyz",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
];
/// Those of them that are answered over HTTP/1 at once.
const HEALTH_PATHS: &[&str] = &["/healthz", "/readyz"];
/// The first page. Those who show no token and no certificate see on it how to get in, the others what they may see.
const FIRST_PAGE: &str = "/";
/// What anyone may ask of the QuantumLeap port: whether the database answers.
const OPEN_PATHS_QUANTUMLEAP: &[&str] = &["/health"];

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

/// What is behind a port.
#[derive(Clone)]
pub(crate) enum Backend {
    /// Our own dialects, over all shards.
    ShardDispatch(Arc<ShardDispatch>),
    /// QuantumLeap's, over one. Who asks is told by what HTTP asks for.
    QuantumLeap(axum::Router),
}

impl Backend {
    fn protocol(&self, headers: &HeaderMap) -> Protocol {
        match self {
            Self::ShardDispatch(_) if is_grpc(headers) => Protocol::Grpc,
            Self::ShardDispatch(_) | Self::QuantumLeap(_) => Protocol::Http,
        }
    }

    fn open_paths(&self) -> &'static [&'static str] {
        match self {
            Self::ShardDispatch(_) => OPEN_PATHS,
            Self::QuantumLeap(_) => OPEN_PATHS_QUANTUMLEAP,
        }
    }

    /// Whether it is the first page that is asked for, by somebody who shows nothing.
    fn is_first_page_for_nobody(&self, path: &str, shown: &PresentedCredentials) -> bool {
        matches!(self, Self::ShardDispatch(_)) && path == FIRST_PAGE && shown.is_nothing()
    }

    /// Puts the address where the dialect looks for it.
    fn tell_address(&self, protocol: Protocol, head: &mut Parts, from: PeerAddress) {
        let extensions = &mut head.extensions;
        match (self, protocol) {
            (Self::QuantumLeap(_), _) => {
                extensions.insert(ganger_dialect_quantumleap::Peer(from.0));
            }
            (Self::ShardDispatch(_), Protocol::Grpc) => {
                extensions.insert(ganger_dialect_grpc::Peer(from.0));
            }
            (Self::ShardDispatch(_), Protocol::Http | Protocol::Resp) => {
                extensions.insert(Peer(from.0));
            }
        }
    }

    async fn answer(
        &self,
        protocol: Protocol,
        mut request: Request<Body>,
        identity: &Identity,
    ) -> Response<Body> {
        match self {
            Self::ShardDispatch(front) => front.answer(protocol, request, identity).await,
            Self::QuantumLeap(routes) => {
                // Nobody comes here on behalf of somebody else.
                request.headers_mut().remove(ON_BEHALF);
                request.extensions_mut().insert(identity.clone());
                through(routes, request).await
            }
        }
    }
}

/// Requests of somebody unidentified, and refusals with words, in progress on one connection; beyond it nobody
/// unidentified is served, and refusals have no body. A body that nobody reads keeps its stream open.
const UNIDENTIFIED_MAX: usize = 8;
/// Bytes of a message of somebody unidentified: the health service's requests are short.
const UNIDENTIFIED_MESSAGE_BYTES_MAX: usize = 1 << 10;
/// Bytes of any other message: the largest payload, and room for the rest. The services have the same limit.
const MESSAGE_BYTES_MAX: usize = (4 << 20) + ganger_types::limits::PAYLOAD_BYTES_MAX;
/// What hands out jobs and may wait for them.
const LEASES: [&str; 2] = ["/api/v1/leases", "/ganger.v1.Leases/Lease"];
/// Bytes that a read of payloads, results or logs holds until its answer is there: what it reads is in memory before it can
/// be counted.
const READ_BYTES: usize = 256 << 10;
/// How the paths of such reads end.
const LARGE_READS: [&str; 7] = [
    "/payload", "/result", "/inputs", "/Payload", "/Result", "/Inputs", "/ReadLog",
];
/// Calls whose messages are worked on as they come.
const MESSAGE_STREAMS: [&str; 2] = ["/ganger.v1.Leases/Work", "/ganger.v1.Jobs/EnqueueStream"];

/// The way in.
#[derive(Clone)]
pub(crate) struct PortHandler {
    pub(crate) behind: Backend,
    pub(crate) guard: HostCheck,
    pub(crate) security: Arc<Security>,
    pub(crate) budget: Budget,
    pub(crate) readers: Readers,
}

/// A connection over which requests come.
#[derive(Clone)]
pub(crate) struct ConnectionInfo {
    from: PeerAddress,
    certificate: Option<Arc<ClientCertificate>>,
    unidentified: Arc<Semaphore>,
}

impl ConnectionInfo {
    pub(crate) fn new(from: PeerAddress, certificate: Option<Arc<ClientCertificate>>) -> Self {
        Self {
            from,
            certificate,
            unidentified: Arc::new(Semaphore::new(UNIDENTIFIED_MAX)),
        }
    }

    fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.unidentified).try_acquire_owned().ok()
    }
}

impl PortHandler {
    /// Paths that tell over HTTP/1 whether the process lives and can work; empty if telling may take long.
    pub(crate) fn health_paths(&self) -> &'static [&'static str] {
        match self.behind {
            Backend::ShardDispatch(_) => HEALTH_PATHS,
            Backend::QuantumLeap(_) => &[],
        }
    }

    /// Answers a request.
    pub(crate) async fn answer(
        self,
        request: Request<Body>,
        line: ConnectionInfo,
    ) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let protocol = self.behind.protocol(&head.headers);
        let shown = PresentedCredentials::of(&head.headers, line.certificate.clone());
        let changes_seen = self.security.changes_count();
        let path = head.uri.path();
        let is_open = self.behind.open_paths().contains(&path);
        let is_for_nobody = self.behind.is_first_page_for_nobody(path, &shown);
        let known = match self.guard.check(&head.method, &head.uri, &head.headers) {
            Err(problem) => return self.refused(protocol, &line, &problem).await,
            Ok(()) if is_open => Some(Identity::Anonymous),
            Ok(()) => {
                let known = self.security.known(protocol, &shown);
                known.or_else(|| is_for_nobody.then_some(Identity::Anonymous))
            }
        };
        let Some(identity) = known else {
            // Nothing of the body is needed, and its answer may have to wait.
            drop(body);
            let place = line.place();
            let identified = self.security.identify(protocol, &shown, line.from).await;
            drop(place);
            let problem = identified.err().unwrap_or_else(revoked);
            return self.refused(protocol, &line, &problem).await;
        };
        let address = line.from.0.ip();
        let hold = Arc::new(self.budget.open(Owner::of(&identity, Some(address))));
        if let Err(full) = hold.grow(REQUEST_BYTES) {
            return self.refused(protocol, &line, &overloaded(&full)).await;
        }
        let place = if identity == Identity::Anonymous {
            let Some(place) = line.place() else {
                return self
                    .refused(protocol, &line, &too_many_unidentified())
                    .await;
            };
            Some(place)
        } else {
            None
        };
        let is_checked = self.security.require(protocol) != Require::Nothing;
        let watched = (is_checked && identity != Identity::Anonymous).then(|| {
            let security = Arc::clone(&self.security);
            WatchedRight::new(security, protocol, shown, identity.clone(), changes_seen)
        });
        // Nothing behind this line needs to see it.
        head.headers.remove(header::AUTHORIZATION);
        self.behind.tell_address(protocol, &mut head, line.from);
        let manner = RequestPolicy::of(protocol, &head, &identity);
        let ahead = if manner.reads_much {
            READ_BYTES.min(self.budget.share() / 4)
        } else {
            0
        };
        if let Err(full) = hold.grow(ahead) {
            return self.refused(protocol, &line, &overloaded(&full)).await;
        }
        // What the dialect makes of the body counts too.
        head.extensions.insert(Arc::clone(&hold));
        let is_multiplexed = head.version == Version::HTTP_2;
        let body = RequestBody::new(body, manner.body, Arc::clone(&hold), watched.clone());
        let request = Request::from_parts(head, Body::new(body));
        let answering = self.behind.answer(protocol, request, &identity);
        let answered = match (watched.clone(), manner.may_be_dropped) {
            (Some(watched), true) => unless_ended(answering, watched).await,
            _ => Some(answering.await),
        };
        let Some(response) = answered else {
            return self.refused(protocol, &line, &revoked()).await;
        };
        hold.shrink(ahead);
        let kept = ResponseHolds {
            hold: Some(hold),
            _place: place,
        };
        let readers = is_multiplexed.then_some(&self.readers);
        let mut response = Some(response);
        let mut parts = Some((kept, watched));
        let counted = std::future::poll_fn(|cx| {
            let (Some(response), Some((kept, watched))) = (response.take(), parts.take()) else {
                unreachable!("it is ready at its first poll");
            };
            let must_go_out = !manner.only_reads;
            Poll::Ready(counted(response, kept, must_go_out, readers, watched, cx))
        });
        match counted.await {
            Ok(response) => response,
            Err(full) => self.refused(protocol, &line, &overloaded(&full)).await,
        }
    }

    /// A refusal: with words, unless too many of them wait on this connection already.
    async fn refused(
        &self,
        protocol: Protocol,
        line: &ConnectionInfo,
        problem: &Problem,
    ) -> Response<Body> {
        let response = refuse(protocol, problem);
        let place = line.place();
        let has_place = place.is_some();
        let kept = ResponseHolds {
            hold: None,
            _place: place,
        };
        let mut parts = Some((response, kept));
        std::future::poll_fn(|cx| {
            let (response, kept) = parts.take().unwrap_or_default();
            if !has_place {
                return Poll::Ready(response.map(|_| Body::empty()));
            }
            let answer = counted(response, kept, true, None, None, cx);
            Poll::Ready(answer.unwrap_or_default())
        })
        .await
    }
}

/// How a request is treated.
#[derive(Clone, Copy)]
struct RequestPolicy {
    body: Kind,
    /// Whether it changes nothing, so that its answer can be withheld.
    only_reads: bool,
    /// Whether its answer is large, often.
    reads_much: bool,
    /// Whether it can be dropped while it waits: it changes nothing, or what it was given goes back.
    may_be_dropped: bool,
}

impl RequestPolicy {
    fn of(protocol: Protocol, head: &Parts, identity: &Identity) -> Self {
        let path = head.uri.path();
        let bytes_max = if *identity == Identity::Anonymous {
            UNIDENTIFIED_MESSAGE_BYTES_MAX
        } else {
            MESSAGE_BYTES_MAX
        };
        let body = match protocol {
            Protocol::Grpc if MESSAGE_STREAMS.contains(&path) => Kind::MessageStream { bytes_max },
            Protocol::Grpc => Kind::Messages { bytes_max },
            Protocol::Http | Protocol::Resp if is_lines(&head.headers) => Kind::Lines,
            Protocol::Http | Protocol::Resp => Kind::Document,
        };
        let only_reads = match protocol {
            Protocol::Grpc => {
                let row = ganger_access::find(path.trim_start_matches('/'));
                row.is_some_and(|row| matches!(row.verb, Verb::Observe | Verb::Greet))
            }
            Protocol::Http | Protocol::Resp => head.method == Method::GET,
        };
        Self {
            body,
            only_reads,
            reads_much: only_reads && LARGE_READS.iter().any(|end| path.ends_with(end)),
            may_be_dropped: only_reads || LEASES.contains(&path),
        }
    }
}

/// The answer, unless the right to it ends before.
async fn unless_ended(
    answering: impl Future<Output = Response<Body>>,
    mut watched: WatchedRight,
) -> Option<Response<Body>> {
    let mut answering = pin!(answering);
    tokio::select! {
        // Looked at first: an answer that is there at the same time is not given, and its jobs go back.
        biased;
        () = watched.ended() => None,
        response = &mut answering => Some(response),
    }
}

fn revoked() -> Problem {
    Problem::new(
        "unauthorized",
        "the token or certificate was revoked, has expired, or has other rights now: send the request again with one that is valid",
    )
}

fn overloaded(full: &Full) -> Problem {
    Problem::new("overloaded", full.to_string()).retry_after(Duration::from_secs(1))
}

fn too_many_unidentified() -> Problem {
    let detail = format!(
        "{UNIDENTIFIED_MAX} requests without a token or certificate are in progress on this connection: wait for one to end"
    );
    Problem::new("overloaded", detail).retry_after(Duration::from_secs(1))
}

fn is_lines(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    media_type.is_some_and(|value| {
        [&b"application/x-ndjson"[..], b"application/jsonl"]
            .iter()
            .any(|lines| {
                value.len() >= lines.len() && value[..lines.len()].eq_ignore_ascii_case(lines)
            })
    })
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    media_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// A refusal in the words of the door's dialect.
pub(crate) fn refuse(protocol: Protocol, problem: &Problem) -> Response<Body> {
    match protocol {
        Protocol::Http | Protocol::Resp => problem.clone().into_response(),
        Protocol::Grpc => refuse_grpc(problem),
    }
}

/// A refusal as gRPC says it: a status in the header, without a body.
fn refuse_grpc(problem: &Problem) -> Response<Body> {
    // 16 is UNAUTHENTICATED, 2 UNKNOWN, 8 RESOURCE_EXHAUSTED, 14 UNAVAILABLE, 3 INVALID_ARGUMENT, 7 PERMISSION_DENIED.
    let code = match problem.status() {
        StatusCode::UNAUTHORIZED => "16",
        StatusCode::TOO_MANY_REQUESTS => "8",
        StatusCode::SERVICE_UNAVAILABLE => "14",
        StatusCode::GATEWAY_TIMEOUT => "2",
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => "3",
        _ => "7",
    };
    let is_retryable = if matches!(code, "14" | "2") {
        "true"
    } else {
        "false"
    };
    let message: String = problem.detail.chars().map(percent).collect();
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    headers.insert("grpc-status", HeaderValue::from_static(code));
    headers.insert("ganger-code", HeaderValue::from_static(problem.code));
    headers.insert("ganger-retryable", HeaderValue::from_static(is_retryable));
    if let Ok(message) = HeaderValue::from_str(&message) {
        headers.insert("grpc-message", message);
    }
    response
}

/// gRPC percent-encodes messages; what is not plain becomes a question mark.
fn percent(character: char) -> char {
    if matches!(character, ' '..='~') && character != '%' {
        character
    } else {
        '?'
    }
}
