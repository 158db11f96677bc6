//! A port: who may pass, and which dialect a request is for. The main port has two, the QuantumLeap port one.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::response::IntoResponse as _;
use ganger_access::Identity;
use ganger_dialect_http::{Guard, Peer, Problem};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};

use crate::behalf::ON_BEHALF;
use crate::front::{Front, through};
use crate::security::{Door, Held, Proven, Require, Security, Shown};

/// What anyone may ask of the main port: whether the process lives and can work.
const OPEN_PATHS: &[&str] = &[
    "/healthz",
    "/readyz",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
];
/// What anyone may ask of the QuantumLeap port: whether the database answers.
const OPEN_PATHS_QUANTUMLEAP: &[&str] = &["/health"];

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From(pub(crate) SocketAddr);

/// What is behind a port.
#[derive(Clone)]
pub(crate) enum Behind {
    /// Our own dialects, over all shards.
    Front(Arc<Front>),
    /// QuantumLeap's, over one. Who asks is told by what HTTP asks for.
    QuantumLeap(axum::Router),
}

impl Behind {
    fn door(&self, headers: &HeaderMap) -> Door {
        match self {
            Self::Front(_) if is_grpc(headers) => Door::Grpc,
            Self::Front(_) | Self::QuantumLeap(_) => Door::Http,
        }
    }

    fn open_paths(&self) -> &'static [&'static str] {
        match self {
            Self::Front(_) => OPEN_PATHS,
            Self::QuantumLeap(_) => OPEN_PATHS_QUANTUMLEAP,
        }
    }

    /// Puts the address where the dialect looks for it.
    fn tell_address(&self, door: Door, head: &mut Parts, from: From) {
        let extensions = &mut head.extensions;
        match (self, door) {
            (Self::QuantumLeap(_), _) => {
                extensions.insert(ganger_dialect_quantumleap::Peer(from.0));
            }
            (Self::Front(_), Door::Grpc) => {
                extensions.insert(ganger_dialect_grpc::Peer(from.0));
            }
            (Self::Front(_), Door::Http | Door::Resp) => {
                extensions.insert(Peer(from.0));
            }
        }
    }

    async fn answer(
        &self,
        door: Door,
        mut request: Request<Body>,
        identity: &Identity,
    ) -> Response<Body> {
        match self {
            Self::Front(front) => front.answer(door, request, identity).await,
            Self::QuantumLeap(routes) => {
                // Nobody comes here on behalf of somebody else.
                request.headers_mut().remove(ON_BEHALF);
                request.extensions_mut().insert(identity.clone());
                through(routes, request).await
            }
        }
    }
}

/// The way in.
#[derive(Clone)]
pub(crate) struct Doors {
    pub(crate) behind: Behind,
    pub(crate) guard: Guard,
    pub(crate) security: Arc<Security>,
}

impl Doors {
    /// Answers a request that came from an address, over a connection with a certificate or without.
    pub(crate) async fn answer(
        self,
        request: Request<Body>,
        from: From,
        certificate: Option<Arc<Proven>>,
    ) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let door = self.behind.door(&head.headers);
        let shown = Shown::of(&head.headers, certificate);
        let changes_seen = self.security.changes_count();
        let identity = match self.admit(door, &head, &shown, from).await {
            Ok(identity) => identity,
            Err(problem) => return refuse(door, &problem),
        };
        // Nothing behind this line needs to see it.
        head.headers.remove(header::AUTHORIZATION);
        self.behind.tell_address(door, &mut head, from);
        let request = Request::from_parts(head, body);
        let response = self.behind.answer(door, request, &identity).await;
        let is_lasting = response.body().size_hint().exact().is_none();
        if is_lasting
            && self.security.require(door) != Require::Nothing
            && identity != Identity::Anonymous
        {
            let security = self.security;
            return response.map(|body| {
                Body::new(Held::new(
                    body,
                    security,
                    door,
                    shown,
                    identity,
                    changes_seen,
                ))
            });
        }
        response
    }

    async fn admit(
        &self,
        door: Door,
        head: &Parts,
        shown: &Shown,
        from: From,
    ) -> Result<Identity, Problem> {
        self.guard.check(&head.method, &head.uri, &head.headers)?;
        if self.behind.open_paths().contains(&head.uri.path()) {
            return Ok(Identity::Anonymous);
        }
        self.security.identify(door, shown, from).await
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    media_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// A refusal in the words of the door's dialect.
pub(crate) fn refuse(door: Door, problem: &Problem) -> Response<Body> {
    match door {
        Door::Http | Door::Resp => problem.clone().into_response(),
        Door::Grpc => refuse_grpc(problem),
    }
}

/// A refusal as gRPC says it: a status in the header, without a body.
fn refuse_grpc(problem: &Problem) -> Response<Body> {
    // 16 is UNAUTHENTICATED, 8 RESOURCE_EXHAUSTED, 14 UNAVAILABLE, 3 INVALID_ARGUMENT, 7 PERMISSION_DENIED.
    let code = match problem.status() {
        StatusCode::UNAUTHORIZED => "16",
        StatusCode::TOO_MANY_REQUESTS => "8",
        StatusCode::SERVICE_UNAVAILABLE => "14",
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => "3",
        _ => "7",
    };
    let is_retryable = if code == "14" { "true" } else { "false" };
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
