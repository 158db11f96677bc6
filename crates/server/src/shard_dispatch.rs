//! Routes a request to its shard: to the dialects over a shard of this process, or to the server that owns it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Body;
use axum::response::IntoResponse as _;
use futures::StreamExt as _;
use ganger_access::{Audit, Identity, Outcome, Record};
use ganger_dialect_grpc::is_read;
use ganger_dialect_http::Problem;
use ganger_router::{Address, RouteError, Router};
use ganger_shard::Handle;
use ganger_types::{JobRef, ShardId};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyStream, StreamBody};
use hyper::body::Frame;
use percent_encoding::percent_decode_str;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::home_ports::{HomePort, HomePorts, is_for_port};
use crate::impersonation::{self, ON_BEHALF};
use crate::port_handler::refuse;
use crate::security::Protocol;

/// Header or gRPC metadata that names the shard of a request.
pub(crate) const SHARD: &str = "ganger-shard";
/// Query parameter that names the shard.
pub(crate) const SHARD_PARAMETER: &str = "shard";
/// Header with the server that forwarded a request; a forwarded request is not forwarded again, except in a cluster.
const FORWARDED_BY: &str = "ganger-forwarded-by";
/// Header with the number of nodes of a cluster that have forwarded a request.
const HOPS: &str = "ganger-hops";
/// Largest number of times that a request is forwarded: nodes may disagree for a moment on who owns a shard.
const HOPS_MAX: u8 = 3;
/// Trailer with the status of a gRPC call.
const STATUS: &str = "grpc-status";
/// Path prefix of a job.
const JOBS: &str = "/api/v1/jobs/";
/// Path prefix of the service for peers.
const PEERS: &str = "/ganger.v1.Peers/";

/// Path of a worker's stream.
const WORK: &str = "/ganger.v1.Leases/Work";
/// Path of the stream that submits batches.
const ENQUEUE_STREAM: &str = "/ganger.v1.Jobs/EnqueueStream";
/// Path of the schema reflection stream.
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
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

/// Paths of HTTP about the server itself, whatever shards it has.
const OWN_PATHS: [&str; 11] = [
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/version",
    "/openapi.json",
    "/api/v1/whoami",
    "/api/v1/server",
    "/api/v1/alerts",
    "/api/v1/nodes",
    "/api/v1/shards",
];
/// Calls of gRPC about the server itself.
const OWN_CALLS: [&str; 5] = [
    "/ganger.v1.Admin/WhoAmI",
    "/ganger.v1.Admin/GetServer",
    "/ganger.v1.Admin/ListAlerts",
    "/ganger.v1.Admin/ListNodes",
    "/ganger.v1.Admin/ListShards",
];

/// Headers about the page in a browser; the first server has checked them.
const BROWSER_HEADERS: [HeaderName; 3] = [
    header::ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-mode"),
];

/// The dialects over one shard.
pub(crate) struct Dialects {
    pub(crate) http: axum::Router,
    pub(crate) grpc: ganger_dialect_grpc::Services,
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
}

/// Number of forwarded requests, for the metrics.
#[derive(Debug, Default)]
pub(crate) struct ForwardedRequests {
    pub(crate) count: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// Dispatches requests to shards.
pub(crate) struct ShardDispatch {
    router: Router,
    local: RwLock<Arc<BTreeMap<ShardId, Arc<Dialects>>>>,
    /// Answers what concerns this server while the default shard is elsewhere; `None` if it never is.
    vacant: Option<Arc<Dialects>>,
    peers: axum::Router,
    audit: Audit,
    /// The ports over the default shard.
    ports: HomePorts,
    forwarded: Arc<ForwardedRequests>,
    stopping: CancellationToken,
    #[cfg(feature = "dashboard")]
    dashboard: Option<ganger_dashboard::Dashboard>,
}

/// Whether the server ended the caller's side of a stream early.
type ClientEnded = Arc<AtomicBool>;

/// Where a request goes.
pub(crate) enum Route {
    Local(Arc<Dialects>),
    Remote(ShardId),
}

impl ShardDispatch {
    pub(crate) fn new(
        router: Router,
        vacant: Option<Dialects>,
        audit: Audit,
        forwarded: Arc<ForwardedRequests>,
        stopping: CancellationToken,
    ) -> Self {
        let peers =
            axum::Router::new().route_service("/ganger.v1.Peers/{method}", router.service());
        Self {
            router,
            local: RwLock::default(),
            vacant: vacant.map(Arc::new),
            peers,
            audit,
            ports: Vec::new(),
            forwarded,
            stopping,
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

    /// Ends serving a shard; requests that have begun go on.
    #[cfg(feature = "postgres")]
    pub(crate) fn remove(&self, shard: &ShardId) {
        self.change(|local| drop(local.remove(shard)));
        self.end_ports(shard);
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<ShardId, Arc<Dialects>>)) {
        let mut local = self.local.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut local));
    }

    fn local(&self) -> Arc<BTreeMap<ShardId, Arc<Dialects>>> {
        Arc::clone(&self.local.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves ports over the default shard beside the dialects.
    pub(crate) fn with_ports(self, ports: HomePorts) -> Self {
        Self { ports, ..self }
    }

    /// Returns the ports over the default shard.
    pub(crate) fn ports(&self) -> &[Arc<dyn HomePort>] {
        &self.ports
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
        &self,
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
            match crate::dashboard::answer(dashboard, request, sender).await {
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
        let (head, body) = request.into_parts();
        if !matches!(caller, Identity::Anonymous) && self.is_for_all(protocol, &head) {
            return self.answer_for_all(protocol, &head, body, &caller).await;
        }
        let route = match caller {
            // Requests that need no credentials concern this server, and nothing is forwarded without an identity.
            Identity::Anonymous => Ok(Route::Local(self.own())),
            _ => self.route(protocol, &head),
        };
        let mut request = Request::from_parts(head, body);
        match route {
            Err(problem) => refuse(protocol, &problem),
            Ok(Route::Local(_)) if is_of_peer && is_for_port(request.uri().path()) => {
                self.answer_port(request, &caller).await
            }
            Ok(Route::Local(dialects)) => {
                // The other services notice by themselves that the server stops; reflection is a library's.
                if request.uri().path() == REFLECTION {
                    request = request.map(|body| self.cut_at_stop(body).0);
                }
                request.extensions_mut().insert(caller);
                dialects.answer(protocol, request).await
            }
            Ok(Route::Remote(shard)) => {
                self.forward_request(protocol, &shard, request, &caller)
                    .await
            }
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

    /// Returns the dialects that answer what concerns this server: those of the default shard if it is here.
    fn own(&self) -> Arc<Dialects> {
        let home = self.local().get(self.router.home()).cloned();
        let own = home.or_else(|| self.vacant.clone());
        own.expect("the default shard is here, or there is a stand-in")
    }

    fn route(&self, protocol: Protocol, head: &Parts) -> Result<Route, Problem> {
        let home = self.router.home();
        let named = named(protocol, head, home)?;
        if named.is_none() && is_about_server(protocol, head.uri.path()) {
            return Ok(Route::Local(self.own()));
        }
        let shard = named.unwrap_or_else(|| home.clone());
        if let Some(dialects) = self.local().get(&shard) {
            return Ok(Route::Local(Arc::clone(dialects)));
        }
        if self.router.topology().owners().is_some() {
            return self.route_in_cluster(shard, head);
        }
        if let Some(by) = head.headers.get(FORWARDED_BY) {
            let by = String::from_utf8_lossy(by.as_bytes());
            return Err(Problem::new(
                "shard_unreachable",
                format!(
                    "shard {shard} cannot be reached: the server of shard {by} has passed the request on to this one, which has shards {} only; the topologies of the servers disagree",
                    self.list_here()
                ),
            ));
        }
        if !self.router.knows(&shard) {
            let error = self.router.unknown(&shard).to_string();
            return Err(Problem::new(
                "unknown_shard",
                format!(
                    "{error}; the id of a job of shard {home} that has a slash in it is written {home}/ID"
                ),
            ));
        }
        Ok(Route::Remote(shard))
    }

    /// Returns where a request for a shard of another node goes.
    fn route_in_cluster(&self, shard: ShardId, head: &Parts) -> Result<Route, Problem> {
        let away = |reason: String| {
            let problem = Problem::new("shard_unreachable", reason);
            problem.retry_after(std::time::Duration::from_secs(1))
        };
        match self.router.topology().address(&shard) {
            Address::Unknown => Err(Problem::new(
                "unknown_shard",
                self.router.unknown(&shard).to_string(),
            )),
            Address::Away(reason) => Err(away(format!(
                "shard {shard} cannot be reached: {reason}; try again, nothing is lost"
            ))),
            Address::At(_) if hops(&head.headers) >= HOPS_MAX => Err(away(format!(
                "shard {shard} cannot be reached: the nodes do not agree yet who owns it; try again, nothing is lost"
            ))),
            Address::At(_) => Ok(Route::Remote(shard)),
        }
    }

    /// Returns the router to all shards.
    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    /// Returns where a request for a shard goes; `None` if no server has it.
    pub(crate) fn route_to(&self, shard: &ShardId) -> Option<Route> {
        if let Some(dialects) = self.local().get(shard) {
            return Some(Route::Local(Arc::clone(dialects)));
        }
        let is_known = self.router.knows(shard);
        is_known.then(|| Route::Remote(shard.clone()))
    }

    fn list_here(&self) -> String {
        let local = self.local();
        let shards: Vec<&str> = local.keys().map(ShardId::as_str).collect();
        shards.join(", ")
    }

    /// Adds headers to a forwarded request: its shard, this server, and the caller.
    pub(crate) fn add_forwarding_headers(
        &self,
        headers: &mut HeaderMap,
        shard: &ShardId,
        caller: &Identity,
    ) {
        for name in BROWSER_HEADERS {
            headers.remove(name);
        }
        if self.router.topology().owners().is_some() {
            headers.insert(HOPS, HeaderValue::from(u16::from(hops(headers)) + 1));
        }
        for (name, shard) in [(SHARD, shard), (FORWARDED_BY, self.router.home())] {
            let value = HeaderValue::from_str(shard.as_str());
            headers.insert(name, value.expect("shards have plain names"));
        }
        if let Some(value) = impersonation::write(caller) {
            headers.insert(ON_BEHALF, value);
        }
    }

    /// Forwards a request to the server of another shard.
    pub(crate) async fn forward_request(
        &self,
        protocol: Protocol,
        shard: &ShardId,
        mut request: Request<Body>,
        caller: &Identity,
    ) -> Response<Body> {
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
        let may_change = may_change(protocol, &request);
        self.add_forwarding_headers(request.headers_mut(), shard, caller);
        self.forwarded.count.fetch_add(1, Ordering::Relaxed);
        let answer = self.router.forward(shard, request);
        let answer = tokio::select! {
            answer = answer => answer,
            // A caller that only reads, perhaps for long, can retry; a change is waited for.
            () = self.stopping.cancelled(), if is_reading || is_waiting => {
                let problem = Problem::new("unavailable", "the server is stopping: try again");
                return refuse(protocol, &problem);
            }
        };
        let response = match answer {
            Ok(response) => response.map(Body::new),
            Err(RouteError::OutcomeUnknown { shard, reason }) if !may_change => {
                let error = RouteError::Unreachable { shard, reason };
                return self.unreached(protocol, &error.to_string());
            }
            Err(error @ RouteError::OutcomeUnknown { .. }) => {
                self.forwarded.failed.fetch_add(1, Ordering::Relaxed);
                return refuse(
                    protocol,
                    &Problem::new("outcome_unknown", error.to_string()),
                );
            }
            Err(error) => return self.unreached(protocol, &error.to_string()),
        };
        if is_unknown_there(&response) {
            let error = RouteError::Unreachable {
                shard: shard.clone(),
                reason: "its server does not accept the token or certificate of this one: see `peer_token_file` and docs/shards.md".to_owned(),
            };
            return self.unreached(protocol, &error.to_string());
        }
        if is_waiting {
            return response.map(|body| self.until_stopping(body));
        }
        if is_submitting {
            return response.map(|body| end_with_retry(body, cut));
        }
        if is_reading {
            let stopping = self.stopping.clone().cancelled_owned();
            return response
                .map(|body| Body::from_stream(body.into_data_stream().take_until(stopping)));
        }
        response
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

    /// Returns the caller's messages until the server stops; then ends them as if the caller had.
    fn cut_at_stop(&self, body: Body) -> (Body, ClientEnded) {
        let cut = ClientEnded::default();
        let (stopping, set) = (self.stopping.clone(), Arc::clone(&cut));
        let stop = async move {
            stopping.cancelled().await;
            set.store(true, Ordering::Relaxed);
        };
        let frames = BodyStream::new(body).take_until(Box::pin(stop));
        (Body::new(StreamBody::new(frames)), cut)
    }

    fn unreached(&self, protocol: Protocol, words: &str) -> Response<Body> {
        self.forwarded.failed.fetch_add(1, Ordering::Relaxed);
        let problem = Problem::new("shard_unreachable", words);
        refuse(
            protocol,
            &problem.retry_after(std::time::Duration::from_secs(1)),
        )
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
fn retry_trailers() -> HeaderMap {
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
fn hops(headers: &HeaderMap) -> u8 {
    match headers.get(HOPS) {
        None => 0,
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.parse().ok());
            number.unwrap_or(HOPS_MAX)
        }
    }
}

/// Whether a request that names no shard is about the server that it reached.
fn is_about_server(protocol: Protocol, path: &str) -> bool {
    if protocol == Protocol::Grpc {
        return OWN_CALLS.contains(&path) || path.starts_with("/grpc.");
    }
    OWN_PATHS.contains(&path)
}

/// Whether a request may change something: without a response its outcome is then unknown.
fn may_change(protocol: Protocol, request: &Request<Body>) -> bool {
    if protocol == Protocol::Grpc {
        return !is_read(request.uri().path());
    }
    !request.method().is_safe()
}

/// Answers a request through the routes.
pub(crate) async fn call_routes(router: &axum::Router, request: Request<Body>) -> Response<Body> {
    match router.clone().oneshot(request).await {
        Ok(response) => response.into_response(),
        Err(never) => match never {},
    }
}

/// Returns the shard that a request names: by the job in its path, its header, or its query; `None` if it names none.
fn named(protocol: Protocol, head: &Parts, home: &ShardId) -> Result<Option<ShardId>, Problem> {
    let path = head.uri.path();
    if protocol == Protocol::Http
        && let Some(rest) = path.strip_prefix(JOBS)
    {
        let segment = rest.split('/').next().unwrap_or_default();
        let text: Vec<u8> = percent_decode_str(segment).collect();
        // The dialect refuses an invalid id with its own message.
        if text.contains(&b'/')
            && let Ok(job) = JobRef::read(&text, home)
        {
            return Ok(Some(job.shard));
        }
    }
    if let Some(value) = head.headers.get(SHARD) {
        let text = String::from_utf8_lossy(value.as_bytes());
        return shard(&text, &format!("header {SHARD}")).map(Some);
    }
    if protocol == Protocol::Http {
        for pair in head.uri.query().unwrap_or_default().split('&') {
            if let Some((SHARD_PARAMETER, value)) = pair.split_once('=') {
                let text = percent_decode_str(value).decode_utf8_lossy();
                return shard(&text, "parameter shard").map(Some);
            }
        }
    }
    Ok(None)
}

fn shard(text: &str, place: &str) -> Result<ShardId, Problem> {
    ShardId::new(text).ok_or_else(|| {
        let shown: String = text.escape_debug().take(80).collect();
        Problem::new(
            "invalid_value",
            format!("{place}: \"{shown}\" is not a shard: 1 to 64 characters of A-Z a-z 0-9 . _ -"),
        )
    })
}

/// Whether the other server does not know this one, which is not the caller's fault.
fn is_unknown_there(response: &Response<Body>) -> bool {
    let status = response.headers().get(STATUS);
    response.status() == StatusCode::UNAUTHORIZED || status.is_some_and(|status| status == "16")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        protocol: Protocol,
        uri: &str,
        header: Option<&str>,
    ) -> Result<Option<String>, &'static str> {
        let mut request = Request::builder().uri(uri);
        if let Some(value) = header {
            request = request.header(SHARD, value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let home = ShardId::default();
        named(protocol, &head, &home)
            .map(|shard| shard.map(|shard| shard.to_string()))
            .map_err(|problem| problem.code)
    }

    #[test]
    fn a_request_names_its_shard_by_its_job_its_header_or_its_query() {
        let http = |uri, header| found(Protocol::Http, uri, header);
        let some = |shard: &str| Ok(Some(shard.to_owned()));
        assert_eq!(http("/api/v1/jobs/2%2Fa", None), some("2"));
        assert_eq!(http("/api/v1/jobs/2%2fa/log?shard=3", Some("4")), some("2"));
        assert_eq!(http("/api/v1/jobs/a?shard=3", Some("4")), some("4"));
        assert_eq!(http("/api/v1/jobs?limit=1&shard=eu.3", None), some("eu.3"));
        assert_eq!(http("/api/v1/jobs/a", None), Ok(None));
        assert_eq!(http("/api/v1/jobs/https%3A%2F%2Fa", None), some("1"));
        assert_eq!(http("/api/v1/jobs?shard=a%2Fb", None), Err("invalid_value"));
        assert_eq!(http("/api/v1/jobs", Some("")), Err("invalid_value"));
        let grpc = "/ganger.v1.Jobs/Get?shard=3";
        assert_eq!(found(Protocol::Grpc, grpc, None), Ok(None));
        assert_eq!(found(Protocol::Grpc, grpc, Some("2")), some("2"));
    }
}
