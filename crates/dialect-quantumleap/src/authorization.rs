//! Authorization, metrics and audit of operations: a layer in front of every handler.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use ganger_access::{Identity, Operation as AccessOperation, Outcome, Record, Right};
use http::{HeaderValue, StatusCode, header};

use crate::api::Api;
use crate::problem::Problem;

/// Address of the client, which the server puts into the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// An operation of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Accept a notification from a context broker.
    Notify,
    /// List tasks that match conditions.
    List,
    /// Count tasks that match conditions.
    Count,
    /// Delete tasks that match conditions.
    Delete,
    /// Report whether the database responds.
    Health,
    /// Report facts about the server.
    Version,
}

impl Operation {
    /// All operations, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::Notify,
        Self::List,
        Self::Count,
        Self::Delete,
        Self::Health,
        Self::Version,
    ];

    /// Returns the operation's name in the audit log and its required right.
    pub fn access(self) -> AccessOperation {
        match self {
            Self::Notify => AccessOperation::new("quantumleap.notify", Right::SUBMIT),
            Self::List => AccessOperation::new("quantumleap.list", Right::OBSERVE),
            Self::Count => AccessOperation::new("quantumleap.count", Right::OBSERVE),
            Self::Delete => AccessOperation::new("quantumleap.delete", Right::OPERATE),
            Self::Health => AccessOperation::new("quantumleap.health", Right::OPEN),
            Self::Version => AccessOperation::new("quantumleap.version", Right::AUTHENTICATED),
        }
    }

    /// Returns the operation's name in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        self.access().name.trim_start_matches("quantumleap.")
    }
}

/// Authorization check in front of one route.
#[derive(Clone)]
pub(crate) struct Authorization {
    pub(crate) api: Api,
    pub(crate) operation: Operation,
}

/// Authorizes a request, runs it, and records it in metrics and audit log.
pub(crate) async fn authorize(
    State(authorization): State<Authorization>,
    mut request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let label = format!("{} [{}]", request.uri().path(), request.method());
    let identity = request.extensions_mut().remove::<Identity>();
    let settings = authorization.api.settings();
    let identity = identity.unwrap_or_else(|| settings.stranger.clone());
    let operation = authorization.operation.access();
    let allowed = identity.may(operation, Some(settings.namespace.as_bytes()));
    let is_audited = allowed.is_err() || operation.is_audited();
    let record = is_audited.then(|| record(&authorization, &identity, &request));
    let (response, outcome, detail) = match allowed {
        Err(denied) => {
            let response = denied_response(&identity, denied.to_string());
            (response, Outcome::Denied, Some(denied.needed))
        }
        Ok(()) => {
            let response = run(request, next).await;
            let status = response.status();
            if status.is_client_error() || status.is_server_error() {
                (response, Outcome::Refused, Some(status.as_str().to_owned()))
            } else {
                (response, Outcome::Done, None)
            }
        }
    };
    if let Some(record) = record {
        settings.audit.write(&Record {
            outcome,
            detail,
            ..record
        });
    }
    measure(&authorization, &label, begun);
    response
}

/// Runs a request. A panic ends only this request, is logged as a defect, and reveals nothing to the client.
async fn run(request: Request, next: Next) -> Response {
    let running = AssertUnwindSafe(next.run(request)).catch_unwind();
    running.await.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        tracing::error!(panic = %text.escape_debug(), "a request handler panicked; this is a defect");
        let detail = "a defect of the server ended this request; what it had acknowledged is kept";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).into_response()
    })
}

fn measure(authorization: &Authorization, label: &str, begun: Instant) {
    let took = begun.elapsed();
    authorization
        .api
        .counters()
        .request(authorization.operation, took);
    if let Some(durations) = &authorization.api.settings().durations
        && let Err(error) = durations.sample(label, took.as_secs_f64())
    {
        tracing::warn!(%error, "samples are lost");
    }
}

fn denied_response(identity: &Identity, detail: String) -> Response {
    if *identity != Identity::Anonymous {
        return Problem::new(StatusCode::FORBIDDEN, detail).into_response();
    }
    let mut response = Problem::new(StatusCode::UNAUTHORIZED, detail).into_response();
    response.headers_mut().insert(
        header::WWW_AUTHENTICATE,
        HeaderValue::from_static("Bearer realm=\"ganger\""),
    );
    response
}

fn record(authorization: &Authorization, identity: &Identity, request: &Request) -> Record {
    let headers = crate::headers::origin(request.headers());
    let on = format!(
        "{} of {:?} on {:?}",
        request.uri().path(),
        headers.tenant.as_deref().unwrap_or_default(),
        headers.path(),
    );
    Record {
        on: Some(on.chars().take(OBJECT_CHARACTERS_MAX).collect()),
        namespace: Some(
            authorization
                .api
                .settings()
                .namespace
                .to_text()
                .into_owned(),
        ),
        from: request.extensions().get::<Peer>().map(|peer| peer.0),
        ..Record::new(
            identity.to_string(),
            authorization.operation.access().name,
            Outcome::Done,
        )
    }
}

/// Maximum length in characters of an operation's object in the audit log.
const OBJECT_CHARACTERS_MAX: usize = 1_000;
