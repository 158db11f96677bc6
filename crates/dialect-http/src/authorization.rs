//! Authorization: a layer before every handler that checks rights and writes the audit log.
//!
//! The layer reads the namespace with the same function as the handler. It refuses a request before anything is
//! looked up, so a refusal does not reveal what exists (`rel S9`).

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ganger_access::{Identity, Operation as Asked, Outcome, Record, Scope};
use ganger_types::Namespace;

use crate::api::Api;
use crate::description::Description;
use crate::problem::Problem;
use crate::request_context;
use crate::request_extensions::{Peer, QueryParameterNames};

/// Maximum number of characters of path and query in the audit log.
const TARGET_CHARACTERS_MAX: usize = 1_000;
/// Maximum number of characters of path and query in the audit log, for refused requests.
const DENIED_CHARACTERS_MAX: usize = 200;

/// The authorization of one operation.
#[derive(Clone)]
pub(crate) struct Authorization {
    api: Api,
    operation: Asked,
    known: QueryParameterNames,
    /// Whether the path contains the namespace.
    is_named_in_path: bool,
}

impl Authorization {
    pub(crate) fn new(api: Api, operation: &Description) -> Self {
        Self {
            api,
            operation: operation.access(),
            known: operation.known(),
            is_named_in_path: operation.path.starts_with("/api/v1/namespaces/"),
        }
    }

    fn namespace(&self, request: &Request) -> Result<Option<Namespace>, Problem> {
        if self.operation.right.scope != Scope::Namespace {
            return Ok(None);
        }
        if self.is_named_in_path {
            return request_context::namespace_in_path(request.uri()).map(Some);
        }
        request_context::namespace_of(request.uri(), request.headers(), &self.known.0).map(Some)
    }
}

/// Passes the request on or refuses it, and writes the audit log.
pub(crate) async fn pass(
    State(gate): State<Authorization>,
    mut request: Request,
    next: Next,
) -> Response {
    let identity = request.extensions_mut().remove::<Identity>();
    let identity = identity.unwrap_or_else(|| gate.api.settings().stranger.clone());
    let namespace = match gate.namespace(&request) {
        Ok(namespace) => namespace,
        Err(problem) => return problem.into_response(),
    };
    let place = namespace.as_ref().map(Namespace::as_bytes);
    let allowed = identity.may(gate.operation, place);
    let is_audited = allowed.is_err() || gate.operation.is_audited();
    let characters_max = if allowed.is_ok() {
        TARGET_CHARACTERS_MAX
    } else {
        DENIED_CHARACTERS_MAX
    };
    let record = is_audited.then(|| {
        record(
            &gate,
            &identity,
            namespace.as_ref(),
            &request,
            characters_max,
        )
    });
    let (response, outcome, detail) = match allowed {
        Err(denied) => {
            let problem = refusal(&identity, denied.to_string());
            (
                problem.into_response(),
                Outcome::Denied,
                Some(denied.needed),
            )
        }
        Ok(()) => {
            request.extensions_mut().insert(identity);
            let response = next.run(request).await;
            let status = response.status();
            if status.is_client_error() || status.is_server_error() {
                (response, Outcome::Refused, Some(status.as_str().to_owned()))
            } else {
                (response, Outcome::Done, None)
            }
        }
    };
    if let Some(record) = record {
        gate.api.settings().audit.write(&Record {
            outcome,
            detail,
            ..record
        });
    }
    response
}

fn refusal(identity: &Identity, detail: String) -> Problem {
    let code = match identity {
        Identity::Anonymous => "unauthorized",
        _ => "permission_denied",
    };
    Problem::new(code, detail)
}

fn record(
    gate: &Authorization,
    identity: &Identity,
    namespace: Option<&Namespace>,
    request: &Request,
    characters_max: usize,
) -> Record {
    let from: Option<SocketAddr> = request.extensions().get::<Peer>().map(|peer| peer.0);
    let target = request.uri().to_string();
    Record {
        on: Some(target.chars().take(characters_max).collect()),
        namespace: namespace.map(|name| ganger_document::names::show(name.as_bytes()).into_owned()),
        from,
        ..Record::new(identity.to_string(), gate.operation.name, Outcome::Done)
    }
}
