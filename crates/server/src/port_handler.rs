//! Handles the requests of a port: identifies callers, and passes requests to a dialect. The main port has two
//! dialects; each other port has one.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse as _;
use futures::future::{BoxFuture, FutureExt as _};
use ganger_access::{Budget, Full, Identity, Owner};
use ganger_dialect_grpc::{ENQUEUE_STREAM, WORK};
use ganger_dialect_http::{HostCheck, Peer, Problem};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::bodies::{
    BodyKind, REQUEST_BYTES, RequestBody, ResponseHolds, UnreadResponses, counted,
};
use crate::home_ports::REDIS_CONNECTION;
#[cfg(feature = "dashboard")]
use crate::impersonation::ON_BEHALF;
use crate::security::{
    ClientCertificate, PageSession, PresentedCredentials, Protocol, Require, Security, WatchedRight,
};
use crate::shard_dispatch::ShardDispatch;

/// Paths of the main port that need no credentials: liveness and readiness.
const OPEN_PATHS: &[&str] = &[
    "/healthz",
    "/readyz",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
];
/// Those of them that are answered at once over HTTP/1.
const HEALTH_PATHS: &[&str] = &["/healthz", "/readyz"];
/// Path of the first page. Callers without credentials see how to authenticate, others what they may see.
const FIRST_PAGE: &str = "/";

/// Address of a connection's client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

/// The dialects behind a port.
pub(crate) trait Backend: Send + Sync {
    /// Returns the protocol of a request with these headers, which decides the credentials it needs.
    fn protocol(&self, headers: &HeaderMap) -> Protocol;

    /// Returns the paths that need no credentials.
    fn open_paths(&self) -> &'static [&'static str];

    /// Returns the paths of health checks over HTTP/1; empty if the checks may take long.
    fn health_paths(&self) -> &'static [&'static str];

    /// Returns the path of the page that callers without credentials may see too; `None` if there is none.
    fn first_page(&self) -> Option<&'static str>;

    /// Returns the session of a request for a page of the dashboard; `None` if the request is for something else.
    /// Pages show themselves how to sign in, and check themselves where a form comes from.
    fn page(&self, _head: &Parts) -> Option<Option<PageSession>> {
        None
    }

    /// Stores the caller's address where the dialect reads it.
    fn insert_address(&self, protocol: Protocol, head: &mut Parts, from: PeerAddress);

    /// Answers a request of an identified caller.
    fn answer<'a>(
        &'a self,
        protocol: Protocol,
        request: Request<Body>,
        identity: &'a Identity,
    ) -> BoxFuture<'a, Response<Body>>;
}

/// ganger's own dialects, over all shards.
impl Backend for Arc<ShardDispatch> {
    fn protocol(&self, headers: &HeaderMap) -> Protocol {
        if is_grpc(headers) {
            Protocol::Grpc
        } else {
            Protocol::Http
        }
    }

    fn open_paths(&self) -> &'static [&'static str] {
        OPEN_PATHS
    }

    fn health_paths(&self) -> &'static [&'static str] {
        HEALTH_PATHS
    }

    fn first_page(&self) -> Option<&'static str> {
        Some(FIRST_PAGE)
    }

    #[cfg(feature = "dashboard")]
    fn page(&self, head: &Parts) -> Option<Option<PageSession>> {
        let dashboard = self.dashboard()?;
        if head.headers.contains_key(ON_BEHALF) {
            // Another server forwards the request of a person, with credentials of its own.
            return None;
        }
        crate::dashboard::session(dashboard, head.uri.path(), &head.headers)
    }

    fn insert_address(&self, protocol: Protocol, head: &mut Parts, from: PeerAddress) {
        if protocol == Protocol::Grpc {
            head.extensions.insert(ganger_dialect_grpc::Peer(from.0));
        } else {
            head.extensions.insert(Peer(from.0));
        }
    }

    fn answer<'a>(
        &'a self,
        protocol: Protocol,
        request: Request<Body>,
        identity: &'a Identity,
    ) -> BoxFuture<'a, Response<Body>> {
        ShardDispatch::dispatch(self, protocol, request, identity).boxed()
    }
}

/// Maximum number of unidentified requests, and of refusals with a body, in progress on one connection. Beyond it no
/// unidentified request is served, and refusals have no body. An unread body keeps its stream open.
const UNIDENTIFIED_MAX: usize = 8;
/// Maximum bytes of an unidentified caller's message: requests of the health service are short.
const UNIDENTIFIED_MESSAGE_BYTES_MAX: usize = 1 << 10;
/// Maximum bytes of any other message: the largest payload, and room for the rest. The services have the same limit.
const MESSAGE_BYTES_MAX: usize = (4 << 20) + ganger_types::limits::PAYLOAD_BYTES_MAX;
/// Paths that lease jobs and may wait for them.
const LEASES: [&str; 2] = ["/api/v1/leases", "/ganger.v1.Leases/Lease"];
/// Bytes that a read of payloads, results or logs holds until its response is there: what it reads is in memory
/// before it can be counted.
const READ_BYTES: usize = 256 << 10;
/// Endings of the paths of such reads.
const LARGE_READS: [&str; 7] = [
    "/payload", "/result", "/inputs", "/Payload", "/Result", "/Inputs", "/ReadLog",
];
/// Calls whose messages are processed as they arrive.
const MESSAGE_STREAMS: [&str; 2] = [WORK, ENQUEUE_STREAM];

/// Entry point for the requests of a port.
#[derive(Clone)]
pub(crate) struct PortHandler {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) host_check: HostCheck,
    pub(crate) security: Arc<Security>,
    pub(crate) budget: Budget,
    pub(crate) readers: UnreadResponses,
}

/// A connection that carries requests.
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

    fn try_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.unidentified).try_acquire_owned().ok()
    }
}

impl PortHandler {
    /// Answers one request of the port.
    pub(crate) async fn answer(
        self,
        request: Request<Body>,
        connection: ConnectionInfo,
    ) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let protocol = self.backend.protocol(&head.headers);
        let page = self.backend.page(&head);
        let is_page = page.is_some();
        let certificate = connection.certificate.clone();
        let credentials = match page {
            Some(session) => PresentedCredentials::of_page(session, certificate),
            None => PresentedCredentials::of(&head.headers, certificate),
        };
        let changes_seen = self.security.changes_count();
        let identity = match self.find_caller(protocol, &head, &credentials, is_page) {
            Ok(Some(identity)) => identity,
            Ok(None) => {
                // The body is not needed, and the response may have to wait.
                drop(body);
                return self
                    .refuse_unidentified(protocol, &credentials, &connection)
                    .await;
            }
            Err(problem) => return self.refused(protocol, &connection, &problem).await,
        };
        let address = connection.from.0.ip();
        let hold = Arc::new(self.budget.open(Owner::of(&identity, Some(address))));
        if let Err(full) = hold.grow(REQUEST_BYTES) {
            return self
                .refused(protocol, &connection, &overloaded(&full))
                .await;
        }
        let permit = if identity == Identity::Anonymous {
            let Some(permit) = connection.try_permit() else {
                return self
                    .refused(protocol, &connection, &too_many_unidentified())
                    .await;
            };
            Some(permit)
        } else {
            None
        };
        let is_checked = self.security.require(protocol) != Require::Nothing;
        let watched = (is_checked && identity != Identity::Anonymous).then(|| {
            let security = Arc::clone(&self.security);
            WatchedRight::new(
                security,
                protocol,
                credentials,
                identity.clone(),
                changes_seen,
            )
        });
        // The code below does not need the header.
        head.headers.remove(header::AUTHORIZATION);
        self.backend
            .insert_address(protocol, &mut head, connection.from);
        let policy = RequestPolicy::of(protocol, &head, &identity);
        let ahead = if policy.reads_much {
            READ_BYTES.min(self.budget.share() / 4)
        } else {
            0
        };
        if let Err(full) = hold.grow(ahead) {
            return self
                .refused(protocol, &connection, &overloaded(&full))
                .await;
        }
        // Memory that the dialect uses for the body counts too.
        head.extensions.insert(Arc::clone(&hold));
        let is_multiplexed = head.version == Version::HTTP_2;
        let body = RequestBody::new(body, policy.body, Arc::clone(&hold), watched.clone());
        body.insert_in_process(&mut head);
        let request = Request::from_parts(head, Body::new(body));
        let answering = self.backend.answer(protocol, request, &identity);
        let answered = match (watched.clone(), policy.may_be_dropped) {
            (Some(watched), true) => unless_ended(answering, watched).await,
            _ => Some(answering.await),
        };
        let Some(response) = answered else {
            return self.refused(protocol, &connection, &revoked()).await;
        };
        hold.shrink(ahead);
        let kept = ResponseHolds {
            hold: Some(hold),
            _permit: permit,
        };
        let readers = is_multiplexed.then_some(&self.readers);
        let mut response = Some(response);
        let mut parts = Some((kept, watched));
        let counted = std::future::poll_fn(|cx| {
            let (Some(response), Some((kept, watched))) = (response.take(), parts.take()) else {
                unreachable!("it is ready at its first poll");
            };
            let must_go_out = !policy.only_reads;
            Poll::Ready(counted(response, kept, must_go_out, readers, watched, cx))
        });
        match counted.await {
            Ok(response) => response,
            Err(full) => {
                self.refused(protocol, &connection, &overloaded(&full))
                    .await
            }
        }
    }

    /// Returns the caller of a request, anonymous where a path needs no credentials; `None` if credentials are missing
    /// or wrong. Fails if the request comes from another site or names an unknown host.
    ///
    /// A page of the dashboard is for everybody: it shows how to sign in, and checks itself where a form comes from.
    fn find_caller(
        &self,
        protocol: Protocol,
        head: &Parts,
        credentials: &PresentedCredentials,
        is_page: bool,
    ) -> Result<Option<Identity>, Problem> {
        let method = if is_page { &Method::GET } else { &head.method };
        self.host_check.check(method, &head.uri, &head.headers)?;
        let path = head.uri.path();
        if self.backend.open_paths().contains(&path) {
            return Ok(Some(Identity::Anonymous));
        }
        let is_first_page = self.backend.first_page() == Some(path) && credentials.is_nothing();
        let known = self.security.known(protocol, credentials);
        let may_be_anonymous = is_page || is_first_page;
        Ok(known.or_else(|| may_be_anonymous.then_some(Identity::Anonymous)))
    }

    /// Refuses a caller with missing or wrong credentials, after the delay of a wrong token.
    async fn refuse_unidentified(
        &self,
        protocol: Protocol,
        credentials: &PresentedCredentials,
        connection: &ConnectionInfo,
    ) -> Response<Body> {
        let permit = connection.try_permit();
        let from = connection.from;
        let identified = self.security.identify(protocol, credentials, from).await;
        drop(permit);
        let problem = identified.err().unwrap_or_else(revoked);
        self.refused(protocol, connection, &problem).await
    }

    /// Returns a refusal: with a body, unless too many of them wait on this connection already.
    async fn refused(
        &self,
        protocol: Protocol,
        connection: &ConnectionInfo,
        problem: &Problem,
    ) -> Response<Body> {
        let response = refuse(protocol, problem);
        let permit = connection.try_permit();
        let has_permit = permit.is_some();
        let kept = ResponseHolds {
            hold: None,
            _permit: permit,
        };
        let mut parts = Some((response, kept));
        std::future::poll_fn(|cx| {
            let (response, kept) = parts.take().unwrap_or_default();
            if !has_permit {
                return Poll::Ready(response.map(|_| Body::empty()));
            }
            let answer = counted(response, kept, true, None, None, cx);
            Poll::Ready(answer.unwrap_or_default())
        })
        .await
    }
}

/// Properties of a request that decide how it is handled.
#[derive(Clone, Copy)]
struct RequestPolicy {
    body: BodyKind,
    /// Whether the request only reads, so that its response can be withheld.
    only_reads: bool,
    /// Whether its response is often large.
    reads_much: bool,
    /// Whether the request can be dropped while it waits: it changes nothing, or its leases are released.
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
        let is_grpc = protocol == Protocol::Grpc;
        let body = if is_grpc && MESSAGE_STREAMS.contains(&path) {
            BodyKind::MessageStream { bytes_max }
        } else if is_grpc {
            BodyKind::Messages { bytes_max }
        } else if path == REDIS_CONNECTION {
            BodyKind::Relayed
        } else if is_lines(&head.headers) {
            BodyKind::Lines
        } else {
            BodyKind::Document
        };
        let only_reads = if is_grpc {
            ganger_dialect_grpc::is_read(path)
        } else {
            head.method == Method::GET
        };
        Self {
            body,
            only_reads,
            reads_much: only_reads && LARGE_READS.iter().any(|end| path.ends_with(end)),
            may_be_dropped: only_reads || LEASES.contains(&path),
        }
    }
}

/// Returns the response, unless the right to it ends before.
async fn unless_ended(
    answering: impl Future<Output = Response<Body>>,
    mut watched: WatchedRight,
) -> Option<Response<Body>> {
    let mut answering = pin!(answering);
    tokio::select! {
        // Polled first: if the right has ended, a response that is ready is not sent, and its jobs are released.
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

/// Returns a refusal in the form of the request's dialect.
pub(crate) fn refuse(protocol: Protocol, problem: &Problem) -> Response<Body> {
    if protocol == Protocol::Grpc {
        refuse_grpc(problem)
    } else {
        problem.clone().into_response()
    }
}

/// Returns a refusal for gRPC: a status in the header, without a body.
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

/// Percent-encodes a character for gRPC messages; characters outside ASCII become a question mark.
fn percent(character: char) -> char {
    if matches!(character, ' '..='~') && character != '%' {
        character
    } else {
        '?'
    }
}
