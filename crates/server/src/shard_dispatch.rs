//! Routes a request to its shard: to the dialects over a shard of this process, or to the server that owns it.

mod continued;
mod continued_calls;
mod forwarding;
mod hand_over;
mod in_flight;
mod kept_body;
mod relayed_streams;
mod routing;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::body::Body;
use axum::response::IntoResponse as _;
use ganger_access::{Audit, CONTINUE, Identity, Outcome, Record};
use ganger_dialect_grpc::EVENTS as EVENTS_CALL;
use ganger_dialect_http::Problem;
use ganger_router::{RouteError, Router};
use ganger_shard::Handle;
use ganger_types::ShardId;
use http::{Request, Response};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::home_ports::{HomePort, HomePorts, is_for_port};
use crate::impersonation::{self, ON_BEHALF};
#[cfg(feature = "postgres")]
use crate::node::marks::{MARKS, Marks};
use crate::port_handler::refuse;
use crate::security::Protocol;

use continued::EVENTS;
#[cfg(feature = "dashboard")]
pub(crate) use forwarding::add_forwarding_headers;
use hand_over::{HandingOver, TAKE_SHARD};
use in_flight::Entered;
pub(crate) use in_flight::InFlight;
pub(crate) use relayed_streams::StreamRelays;
use routing::named_shard;
pub(crate) use routing::{Route, SHARD, SHARD_PARAMETER};
pub(crate) use waiting::OWNER_WAIT_MAX;
use waiting::{WaitingRequests, add_wait_left, wait_until};

/// Path prefix of the service for peers.
const PEERS: &str = "/ganger.v1.Peers/";

/// Path of the schema reflection stream.
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// Extension of a request to a port over the default shard, on its way from the node that has got it.
#[derive(Clone, Copy)]
pub(crate) struct ForPort;

/// The dialects over one shard.
pub(crate) struct Dialects {
    pub(crate) http: axum::Router,
    pub(crate) grpc: ganger_dialect_grpc::Services,
    /// The requests in progress.
    pub(crate) in_flight: InFlight,
}

impl Dialects {
    /// Answers a request of an authenticated caller in this dialect.
    pub(crate) async fn answer(
        &self,
        protocol: Protocol,
        request: Request<Body>,
    ) -> Response<Body> {
        if protocol == Protocol::Grpc {
            self.grpc.answer(request).await
        } else {
            call_routes(&self.http, request).await
        }
    }

    /// Counts a request until the result is dropped; `None` if the shard is leaving this node.
    fn enter(&self) -> Option<Entered> {
        self.in_flight.enter()
    }
}

/// Number of forwarded requests, for the metrics.
#[derive(Debug, Default)]
pub(crate) struct ForwardedRequests {
    pub(crate) count: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Streams of workers that went on at another node.
    pub(crate) streams_moved: Arc<AtomicU64>,
    /// Waits, logs, and streams of events and of batches that went on at another node.
    pub(crate) answers_moved: Arc<AtomicU64>,
    /// Requests that wait for a node that serves their shard.
    pub(crate) waiting: WaitingRequests,
}

/// Dispatches requests to shards.
pub(crate) struct ShardDispatch {
    router: Router,
    local: watch::Sender<Arc<BTreeMap<ShardId, Arc<Dialects>>>>,
    /// Answers what concerns this server while the default shard is elsewhere; `None` if it never is.
    vacant: Option<Arc<Dialects>>,
    peers: axum::Router,
    audit: Audit,
    /// The ports over the default shard.
    ports: HomePorts,
    forwarded: Arc<ForwardedRequests>,
    relays: StreamRelays,
    stopping: CancellationToken,
    /// Notified when another node has released a shard for this one.
    released: Notify,
    handing_over: HandingOver,
    /// What is known of the confirmed commits of the cluster's shards; `None` if this is no node of a cluster.
    #[cfg(feature = "postgres")]
    marks: Option<Arc<Marks>>,
    #[cfg(feature = "dashboard")]
    dashboard: Option<ganger_dashboard::Dashboard>,
}

impl ShardDispatch {
    pub(crate) fn new(
        router: Router,
        vacant: Option<Dialects>,
        audit: Audit,
        forwarded: Arc<ForwardedRequests>,
        relays: StreamRelays,
    ) -> Self {
        let peers =
            axum::Router::new().route_service("/ganger.v1.Peers/{method}", router.service());
        Self {
            router,
            local: watch::Sender::default(),
            vacant: vacant.map(Arc::new),
            peers,
            audit,
            ports: Vec::new(),
            forwarded,
            stopping: relays.workers.stopping.clone(),
            relays,
            released: Notify::new(),
            handing_over: HandingOver::default(),
            #[cfg(feature = "postgres")]
            marks: None,
            #[cfg(feature = "dashboard")]
            dashboard: None,
        }
    }

    /// Serves a shard of this process from now on.
    pub(crate) fn put(&self, shard: &Handle, dialects: Dialects) {
        let dialects = Arc::new(dialects);
        self.change(|local| drop(local.insert(shard.id().clone(), dialects)));
        self.begin_ports(shard);
    }

    /// Ends serving a shard; requests that have begun go on. Returns what served it.
    #[cfg(feature = "postgres")]
    pub(crate) fn remove(&self, shard: &ShardId) -> Option<Arc<Dialects>> {
        let mut removed = None;
        self.change(|local| removed = local.remove(shard));
        self.end_ports(shard);
        removed
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<ShardId, Arc<Dialects>>)) {
        self.local.send_modify(|local| change(Arc::make_mut(local)));
    }

    fn local(&self) -> Arc<BTreeMap<ShardId, Arc<Dialects>>> {
        Arc::clone(&self.local.borrow())
    }

    /// Serves ports over the default shard beside the dialects.
    pub(crate) fn with_ports(self, ports: HomePorts) -> Self {
        Self { ports, ..self }
    }

    /// Returns the ports over the default shard.
    pub(crate) fn ports(&self) -> &[Arc<dyn HomePort>] {
        &self.ports
    }

    /// Lets other nodes of the cluster tell what they know of confirmed commits.
    #[cfg(feature = "postgres")]
    pub(crate) fn with_marks(self, marks: Option<Arc<Marks>>) -> Self {
        Self { marks, ..self }
    }

    /// Returns what is known of the confirmed commits of the cluster's shards; `None` if this is no node of a cluster.
    #[cfg(feature = "postgres")]
    pub(crate) fn marks(&self) -> Option<&Marks> {
        self.marks.as_deref()
    }

    /// Serves the dashboard beside the dialects.
    #[cfg(feature = "dashboard")]
    pub(crate) fn with_dashboard(self, dashboard: Option<ganger_dashboard::Dashboard>) -> Self {
        Self { dashboard, ..self }
    }

    /// Returns the dashboard; `None` if it is switched off.
    #[cfg(feature = "dashboard")]
    pub(crate) fn dashboard(&self) -> Option<&ganger_dashboard::Dashboard> {
        self.dashboard.as_ref()
    }

    /// Answers a request of an identified caller.
    pub(crate) async fn dispatch(
        self: &Arc<Self>,
        protocol: Protocol,
        mut request: Request<Body>,
        sender: &Identity,
    ) -> Response<Body> {
        if protocol == Protocol::Grpc && request.uri().path().starts_with(PEERS) {
            return self.answer_peer(request, sender).await;
        }
        #[cfg(feature = "dashboard")]
        if let Some(dashboard) = &self.dashboard
            && protocol == Protocol::Http
        {
            match self.answer_page(dashboard, request, sender).await {
                Ok(response) => return response,
                Err(other) => request = other,
            }
        }
        let mut is_of_peer = false;
        let caller = match request.headers_mut().remove(ON_BEHALF) {
            None => sender.clone(),
            Some(value) => match impersonation::read(sender, &value) {
                Ok(caller) => {
                    is_of_peer = true;
                    caller
                }
                Err(reason) => return refuse(protocol, &Problem::new("permission_denied", reason)),
            },
        };
        let (mut head, body) = request.into_parts();
        if !is_of_peer {
            // It is between nodes.
            head.headers.remove(CONTINUE);
        }
        if is_of_peer && head.uri.path() == TAKE_SHARD {
            return self.take_shard(named_shard(&head), body).await;
        }
        #[cfg(feature = "postgres")]
        if is_of_peer && head.uri.path() == MARKS {
            return self.learn_marks(body).await;
        }
        if !matches!(caller, Identity::Anonymous) && self.is_for_all(protocol, &head) {
            return self.answer_for_all(protocol, &head, body, &caller).await;
        }
        let is_of_known_caller = !is_of_peer && !matches!(caller, Identity::Anonymous);
        if is_of_known_caller && self.is_continued(protocol, &head) {
            return self.answer_continued(head, caller).await;
        }
        if is_of_known_caller && self.is_continued_call(protocol, &head) {
            return self.answer_continued_call(head, body, caller).await;
        }
        let mut request = Request::from_parts(head, body);
        if is_of_known_caller && self.is_relayed(protocol, request.uri().path()) {
            return self.relay_stream(request, caller).await;
        }
        if is_of_peer && is_for_port(request.uri().path()) {
            request.extensions_mut().insert(ForPort);
        }
        self.answer_at_shard(protocol, request, caller).await
    }

    /// Answers a request here, or through the server of its shard. If a node of a cluster turns out to be gone, another one
    /// is waited for, if the request may be sent again.
    pub(crate) async fn answer_at_shard(
        &self,
        protocol: Protocol,
        mut request: Request<Body>,
        caller: Identity,
    ) -> Response<Body> {
        let until = wait_until(request.headers());
        // Once a change was sent without an answer, no failure to send it again says that it was not made.
        let mut unknown = None;
        loop {
            let (head, body) = request.into_parts();
            let route = match caller {
                // Requests that need no credentials concern this server, and nothing is forwarded without an identity.
                Identity::Anonymous => Ok(Route::about_server(self.own())),
                _ => self.route_in_time(protocol, &head, until).await,
            };
            request = Request::from_parts(head, body);
            let shard = match route {
                Err(problem) => match unknown {
                    Some(error) => return self.unanswered(protocol, &error),
                    None => return refuse(protocol, &problem),
                },
                Ok(Route::Local(..)) if request.extensions().get::<ForPort>().is_some() => {
                    return self.answer_port(request, &caller).await;
                }
                Ok(Route::Local(dialects, entered)) => {
                    // The other services notice by themselves that the server stops; reflection is a library's.
                    if request.uri().path() == REFLECTION {
                        request = request.map(|body| self.cut_at_stop(body).0);
                    }
                    request.extensions_mut().insert(caller);
                    // A stream of events ends when the shard has closed, which therefore does not wait for it.
                    let is_waited_for = ![EVENTS, EVENTS_CALL].contains(&request.uri().path());
                    let response = dialects.answer(protocol, request).await;
                    if is_waited_for {
                        return entered.until_read(response);
                    }
                    return response;
                }
                Ok(Route::Remote(shard)) => shard,
            };
            if self.router.topology().owners().is_none() {
                return self
                    .forward_request(protocol, &shard, request, &caller)
                    .await;
            }
            add_wait_left(request.headers_mut(), until);
            match self
                .try_forward_kept(protocol, &shard, request, &caller)
                .await
            {
                Ok(response) => return response,
                Err((error, kept)) => {
                    if matches!(error, RouteError::OutcomeUnknown { .. }) {
                        unknown = Some(error.clone());
                    }
                    match kept.filter(|_| Instant::now() < until) {
                        None => {
                            return self.unanswered(protocol, unknown.as_ref().unwrap_or(&error));
                        }
                        Some(again) => request = again,
                    }
                }
            }
            self.wait_to_retry(until).await;
        }
    }

    /// Answers a request of another server.
    async fn answer_peer(&self, mut request: Request<Body>, peer: &Identity) -> Response<Body> {
        let method = request.uri().path().trim_start_matches('/');
        let operation = ganger_dialect_grpc::right(method).unwrap_or(impersonation::PEERS);
        if let Err(denied) = peer.may(operation, None) {
            let from = request.extensions().get::<ganger_dialect_grpc::Peer>();
            self.audit.write(&Record {
                from: from.map(|from| from.0),
                detail: Some(denied.needed.clone()),
                ..Record::new(peer.to_string(), method, Outcome::Denied)
            });
            let problem = Problem::new("permission_denied", denied.to_string());
            return refuse(Protocol::Grpc, &problem);
        }
        request.extensions_mut().insert(peer.clone());
        call_routes(&self.peers, request).await
    }

    /// Returns the router to all shards.
    pub(crate) fn router(&self) -> &Router {
        &self.router
    }
}

/// Answers a request through the routes.
pub(crate) async fn call_routes(router: &axum::Router, request: Request<Body>) -> Response<Body> {
    match router.clone().oneshot(request).await {
        Ok(response) => response.into_response(),
        Err(never) => match never {},
    }
}
