//! The dashboard on the main port: its credentials are those of the other protocols, its paths are below `/ui`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::future::{BoxFuture, FutureExt as _};
use ganger_access::Identity;
use ganger_attention::Attention;
use ganger_dashboard::{
    Accepted, Dashboard, Forwarded, Gate, Others, Place, Settings, Unaccepted, Visitor,
};
use ganger_dialect_http::{Peer, Problem};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};

use ganger_router::Router;
use ganger_shard::ShardSet;
use ganger_types::ShardId;

use crate::error::StartError;
use crate::impersonation::{self, ON_BEHALF};
use crate::port_handler::refuse;
use crate::security::{PageSession, Protocol, Require, Security};
use crate::shard_dispatch::{ShardDispatch, add_forwarding_headers};
use crate::start::ServerContext;

/// Makes the dashboard; `None` if it is switched off.
pub(crate) fn open(
    common: &ServerContext,
    shards: &ShardSet,
    router: &Router,
    attention: &Attention,
) -> Result<Option<Dashboard>, StartError> {
    let config = &common.config;
    if !config.ui.is_enabled {
        return Ok(None);
    }
    let session_file = (!config.is_in_memory()).then(|| {
        let mut name = config.db_of(shards.first().id()).into_os_string();
        name.push("-sessions");
        name.into()
    });
    let settings = Settings {
        options: config.ui.clone(),
        version: env!("CARGO_PKG_VERSION"),
        shown_settings: common.config.shown(),
        shards: shards.clone(),
        router: Some(router.clone()),
        others: Some(Arc::new(OtherServers(router.clone()))),
        attention: attention.clone(),
        operations: ganger_dialect_http::rights(),
        status_of: |code| Problem::new(code, "").status(),
        gate: Arc::new(SecurityGate(Arc::clone(&common.security))),
        is_encrypted: common.security.is_encrypted(),
        audit: common.security.audit.clone(),
        streams: common.streams().clone(),
        stopping: common.stopping.clone(),
        session_file,
    };
    let dashboard = Dashboard::new(settings).map_err(|error| StartError::System {
        doing: "open the sessions of the dashboard",
        reason: error.to_string(),
    })?;
    Ok(Some(dashboard))
}

/// The session of a request for a page, as security looks it up; `None` if the request is for something else.
pub(crate) fn session(
    dashboard: &Dashboard,
    path: &str,
    headers: &HeaderMap,
) -> Option<Option<PageSession>> {
    dashboard.owns(path)?;
    let session = dashboard.session(headers);
    Some(session.map(|session| PageSession {
        name: session.name,
        hash: session.hash,
    }))
}

/// Redirects a person who asks for the first page to the dashboard; `None` if the request is for something else.
pub(crate) fn redirect_home(
    dashboard: &Dashboard,
    request: &Request<Body>,
) -> Option<Response<Body>> {
    if request.uri().path() != "/" || !wants_page(request) {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let home = HeaderValue::try_from(dashboard.home());
    let home = home.unwrap_or(HeaderValue::from_static("/ui/"));
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, home);
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    Some(response)
}

impl ShardDispatch {
    /// Answers a request if it is for the dashboard, here or through the server of the shard that it is about; else gives
    /// it back.
    pub(crate) async fn answer_page(
        &self,
        dashboard: &Dashboard,
        mut request: Request<Body>,
        sender: &Identity,
    ) -> Result<Response<Body>, Request<Body>> {
        if let Some(response) = redirect_home(dashboard, &request) {
            return Ok(response);
        }
        if dashboard.owns(request.uri().path()).is_none() {
            return Err(request);
        }
        let from: Option<SocketAddr> = request.extensions().get::<Peer>().map(|peer| peer.0);
        let mut visitor = Visitor {
            identity: sender.clone(),
            from,
            forwarded: None,
        };
        if let Some(value) = request.headers_mut().remove(ON_BEHALF) {
            match impersonation::read(sender, &value) {
                Ok(caller) => {
                    visitor.identity = caller;
                    visitor.forwarded = Some(Forwarded::take(request.headers_mut()));
                }
                Err(reason) => {
                    let problem = Problem::new("permission_denied", reason);
                    return Ok(refuse(Protocol::Http, &problem));
                }
            }
            return Ok(dashboard.answer(request, visitor).await);
        }
        let request = match dashboard.place(request, &visitor).await {
            Place::Here(request) => request,
            Place::Refused(response) => return Ok(response),
            Place::Elsewhere(elsewhere) => {
                let (shard, request, session) = elsewhere.into_parts();
                let caller = &visitor.identity;
                let forwarded = self.try_forward_kept(Protocol::Http, &shard, request, caller);
                match forwarded.await {
                    Ok(response) => return Ok(dashboard.answered_elsewhere(session, response)),
                    // The page says that the shard cannot be reached.
                    Err((_, Some(request))) => request,
                    Err((error, None)) => return Ok(self.unanswered(Protocol::Http, &error)),
                }
            }
        };
        Ok(dashboard.answer(request, visitor).await)
    }
}

/// Whether a person asks with a browser.
fn wants_page(request: &Request<Body>) -> bool {
    let given = request.headers().get_all(header::ACCEPT).iter();
    let mut given = given.filter_map(|value| value.to_str().ok());
    request.method().is_safe() && given.any(|value| value.contains("text/html"))
}

/// The servers of other shards, for the rows of theirs in pages of all shards.
struct OtherServers(Router);

impl Others for OtherServers {
    fn send<'a>(
        &'a self,
        shard: &'a ShardId,
        mut request: Request<Body>,
        viewer: &'a Identity,
    ) -> BoxFuture<'a, Result<Response<Body>, String>> {
        add_forwarding_headers(&self.0, request.headers_mut(), shard, viewer);
        let answer = async move {
            let answer = self.0.forward(shard, request).await;
            let answer = answer.map_err(|error| error.to_string())?;
            Ok(answer.map(Body::new))
        };
        answer.boxed()
    }
}

/// The credentials of the server, for the form to sign in.
struct SecurityGate(Arc<Security>);

impl Gate for SecurityGate {
    fn is_open(&self) -> bool {
        self.0.require(Protocol::Http) == Require::Nothing
    }

    fn takes_tokens(&self) -> bool {
        self.0.require(Protocol::Http) != Require::ClientCert
    }

    fn check<'a>(
        &'a self,
        token: &'a [u8],
        from: Option<SocketAddr>,
    ) -> BoxFuture<'a, Result<Accepted, Unaccepted>> {
        async move {
            if let Some((identity, session)) = self.0.accept(token) {
                let PageSession { name, hash } = session;
                return Ok(Accepted {
                    identity,
                    name,
                    hash,
                });
            }
            let from = from.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
            let problem = self.0.refuse_token(from).await;
            Err(if problem.code == "too_many_attempts" {
                Unaccepted::TooMany {
                    retry_after: problem.retry_after.unwrap_or(Duration::from_secs(15)),
                }
            } else {
                Unaccepted::Unknown
            })
        }
        .boxed()
    }
}
