//! Whether a method may be called, and what the audit log hears of it.
//!
//! A layer before all services refuses what the caller may nowhere do. In which namespace stands inside
//! the message, so the second half of the check is where namespaces are read: [`namespace`]. It knows the
//! caller from the task; outside of one it refuses everything, so that forgetting to carry the caller to where a
//! stream is polled (see [`on_behalf`]) refuses requests rather than accepts them.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Request;
use axum::response::Response;
use ganger_access::{Audit, Denied, Identity, Operation, Outcome, Owner, Record, Right};
use ganger_types::Namespace;
use tonic::Status;

use crate::problem::Problem;
use crate::rights;

/// Jobs and queues of one call that the audit log names.
const NAMED_MAX: usize = 10;

tokio::task_local! {
    static CALLER: Arc<Caller>;
}

/// Where a request came from, as the server has put it into the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Identity of a caller, and the operation that it calls.
pub(crate) struct Caller {
    identity: Identity,
    operation: Operation,
    from: Option<SocketAddr>,
    audit: Audit,
    seen: Mutex<Seen>,
}

/// What was seen of a call while it was decoded, for the audit log.
#[derive(Default)]
struct Seen {
    namespace: Option<Namespace>,
    named: Vec<String>,
    denied: Option<Denied>,
    /// Whether the call's own record is written. A stream goes on, and a later refusal gets a record of its own.
    is_recorded: bool,
}

/// What the layer needs.
#[derive(Clone)]
pub(crate) struct Authorization {
    pub(crate) unidentified: Identity,
    pub(crate) audit: Audit,
}

/// Lets the call pass, or refuses it; tells the audit log.
pub(crate) async fn pass<F>(
    gate: &Authorization,
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
    let identity = request.extensions_mut().remove::<Identity>();
    let identity = identity.unwrap_or_else(|| gate.unidentified.clone());
    let from = request.extensions().get::<Peer>().map(|peer| peer.0);
    let method = request.uri().path().trim_start_matches('/');
    let Some(operation) = rights::right(method) else {
        let message = format!("this server has no method {method:?}: is it of another version?");
        return Status::unimplemented(message).into_http();
    };
    let caller = Arc::new(Caller {
        identity,
        operation,
        from,
        audit: gate.audit.clone(),
        seen: Mutex::default(),
    });
    let response = match caller.identity.may_somewhere(operation) {
        Ok(()) => CALLER.scope(Arc::clone(&caller), next(request)).await,
        Err(denied) => {
            let status: Status = refusal(&caller.identity, &denied).into();
            caller.seen().denied = Some(denied);
            status.into_http()
        }
    };
    let code = response.headers().get("grpc-status").cloned();
    let failed = code.filter(|code| code.as_bytes() != b"0");
    let mut seen = caller.seen();
    seen.is_recorded = true;
    if seen.denied.is_some() || operation.is_audited() {
        let failed =
            failed.map(|code| format!("grpc-status {}", String::from_utf8_lossy(code.as_bytes())));
        caller.audit.write(&caller.record(&seen, failed));
    }
    drop(seen);
    response
}

impl Caller {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, seen: &Seen, failed: Option<String>) -> Record {
        let (outcome, detail) = match &seen.denied {
            Some(denied) => (Outcome::Denied, Some(denied.needed.clone())),
            None if failed.is_some() => (Outcome::Refused, failed),
            None => (Outcome::Done, None),
        };
        let namespace = seen.namespace.as_ref();
        Record {
            on: (!seen.named.is_empty()).then(|| seen.named.join(", ")),
            namespace: namespace.map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned()),
            from: self.from,
            detail,
            ..Record::new(self.identity.to_string(), self.operation.name, outcome)
        }
    }
}

fn refusal(identity: &Identity, denied: &Denied) -> Problem {
    let code = match identity {
        Identity::Anonymous => "unauthorized",
        _ => "permission_denied",
    };
    Problem::new(code, denied.to_string())
}

/// Who calls; somebody unknown outside of a call.
pub(crate) fn identity() -> Identity {
    let known = CALLER.try_with(|caller| caller.identity.clone());
    known.unwrap_or(Identity::Anonymous)
}

/// The party whose share of streams a call takes from.
pub(crate) fn owner() -> Owner {
    let owner = CALLER.try_with(|caller| {
        let address = caller.from.map(|from| from.ip());
        Owner::of(&caller.identity, address)
    });
    owner.unwrap_or(Owner::Unknown)
}

/// Refuses if the caller may not do here what it has called.
pub(crate) fn check(namespace: &Namespace) -> Result<(), Problem> {
    let checked = CALLER.try_with(|caller| {
        let allowed = caller
            .identity
            .may(caller.operation, Some(namespace.as_bytes()));
        let mut seen = caller.seen();
        seen.namespace = Some(namespace.clone());
        if let Err(denied) = &allowed {
            let is_first = seen.denied.replace(denied.clone()).is_none();
            // One record for all batches of a stream: else a denied client could fill the disk with them.
            if seen.is_recorded && is_first {
                caller.audit.write(&caller.record(&seen, None));
            }
        }
        allowed.map_err(|denied| refusal(&caller.identity, &denied))
    });
    let outside = |_| {
        Err(Problem::new(
            "unauthorized",
            "nobody is known to have called this: please report it",
        ))
    };
    checked.unwrap_or_else(outside)
}

/// Refuses if the caller may not do what takes this right here; the right to the method has been checked.
pub(crate) fn check_right(right: Right, namespace: &Namespace) -> Result<(), Problem> {
    let checked = CALLER.try_with(|caller| {
        let operation = Operation::new(caller.operation.name, right);
        let allowed = caller.identity.may(operation, Some(namespace.as_bytes()));
        allowed.map_err(|denied| {
            let problem = refusal(&caller.identity, &denied);
            caller.seen().denied = Some(denied);
            problem
        })
    });
    checked.unwrap_or_else(|_| {
        Err(Problem::new(
            "unauthorized",
            "nobody is known to have called this: please report it",
        ))
    })
}

/// Notes for the audit log what the call is about.
pub(crate) fn note(name: impl FnOnce() -> String) {
    // Outside of a call nobody listens.
    let _ = CALLER.try_with(|caller| {
        let mut seen = caller.seen();
        if seen.named.len() < NAMED_MAX {
            seen.named.push(name());
        }
    });
}

/// Caller of the current task, to be carried to where a stream is polled; `None` outside of a call.
pub(crate) fn current() -> Option<Arc<Caller>> {
    CALLER.try_with(Arc::clone).ok()
}

/// Runs a future on behalf of a caller.
pub(crate) async fn on_behalf<F: Future>(caller: Option<Arc<Caller>>, future: F) -> F::Output {
    match caller {
        Some(caller) => CALLER.scope(caller, future).await,
        None => future.await,
    }
}
