//! One port, two dialects: who may pass, and which dialect a request is for.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use ganger_dialect_http::{Guard, Peer, Problem};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use tower::ServiceExt as _;

use crate::secret::Secret;

/// How long a wrong token is made to wait, so that trying many takes long.
const REFUSAL_DELAY: Duration = Duration::from_millis(250);
/// What anyone may ask: whether the process lives and can work.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The way in.
#[derive(Clone)]
pub(crate) struct Doors {
    pub(crate) http: Router,
    pub(crate) grpc: Router,
    pub(crate) guard: Guard,
    pub(crate) token: Option<Secret>,
}

impl Doors {
    /// Answers a request that came from `peer`.
    pub(crate) async fn answer(self, request: Request<Body>, peer: SocketAddr) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let is_grpc = is_grpc(&head.headers);
        if let Err(problem) = self.admit(&head, peer).await {
            return if is_grpc {
                refuse_grpc(&problem)
            } else {
                problem.into_response()
            };
        }
        head.extensions.insert(Peer(peer));
        let router = if is_grpc { self.grpc } else { self.http };
        match router.oneshot(Request::from_parts(head, body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    async fn admit(&self, head: &Parts, peer: SocketAddr) -> Result<(), Problem> {
        self.guard.check(&head.method, &head.uri, &head.headers)?;
        let Some(token) = &self.token else {
            return Ok(());
        };
        if OPEN_PATHS.contains(&head.uri.path()) || token.is_shown(&head.headers) {
            return Ok(());
        }
        let has_shown = head.headers.contains_key(header::AUTHORIZATION);
        if has_shown {
            let path = head.uri.path().escape_debug().to_string();
            tracing::warn!(target: "ganger::audit", %peer, path, "wrong token");
            tokio::time::sleep(REFUSAL_DELAY).await;
        }
        let fault = if has_shown {
            "the token is not the right one"
        } else {
            "a token is needed"
        };
        Err(Problem::new(
            "unauthorized",
            format!(
                "{fault}: send it as the header `Authorization: Bearer TOKEN`; the command line reads GANGER_TOKEN or GANGER_TOKEN_FILE"
            ),
        ))
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    media_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// A refusal as gRPC says it: a status in the header, without a body.
fn refuse_grpc(problem: &Problem) -> Response<Body> {
    // 16 is UNAUTHENTICATED, 7 PERMISSION_DENIED.
    let code = if problem.status() == StatusCode::UNAUTHORIZED {
        "16"
    } else {
        "7"
    };
    let message: String = problem.detail.chars().map(percent).collect();
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    headers.insert("grpc-status", HeaderValue::from_static(code));
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
