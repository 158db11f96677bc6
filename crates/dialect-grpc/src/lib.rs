//! The gRPC dialect: the services of `ganger.v1` over a shard, with reflection and health.
//!
//! `decode` checks and converts requests, `encode` converts replies, `problem` has the one table of errors, `service`
//! has a file per service, and `merged` merges the lists of all shards. No rule of the queue is here.

#![forbid(unsafe_code)]

mod authorization;
mod continued;
mod decode;
mod encode;
mod enqueue_relay;
mod inner_stream;
pub mod merged;
mod problem;
mod repeats;
mod rights;
mod sender;
mod service;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use ganger_access::{Audit, Identity, StreamLimit};
use ganger_attention::Attention;
use ganger_proto::v1;
use ganger_proto::v1::jobs_server::JobsServer;
use ganger_proto::v1::leases_server::LeasesServer;
use ganger_router::{Graphs, Owners, Router};
use ganger_shard::{Handle, Health, ShardSet};
use http::{Request, Response};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tonic::codegen::Service as _;
use tonic::service::Routes;

pub use authorization::Peer;
pub use continued::{EVENTS, LongCall, message_bytes, whole_messages};
pub use enqueue_relay::{ENQUEUE_STREAM, EnqueueRelay};
pub use inner_stream::Connect;
pub use problem::{CODES, Problem};
pub use repeats::{has_key, is_report, is_submission};
pub use rights::{is_read, right};
pub use work::{WORK, WorkerRelay};

use crate::authorization::Authorization;
use crate::work::Holders;

/// What the dialect needs to know besides the shard.
#[derive(Clone)]
pub struct Options {
    /// Version of the server, shown to clients.
    pub version: String,
    /// Time at which the server started.
    pub started_at: Instant,
    /// Largest payload that any namespace allows; requests may be 4 MiB larger.
    pub payload_bytes_max: usize,
    /// Identity of a request into which the server has put none; anonymous by default, without any right.
    pub unidentified: Identity,
    /// The log of changes and refusals, with who asked for them.
    pub audit: Audit,
    /// Finds the other shards; without one only this shard is known.
    pub router: Option<Router>,
    /// All shards of this process, which must be ready before it serves; `None`: only this one.
    pub shards: Option<ShardSet>,
    /// Finder of what needs attention; `None`: it looks at the shards of this process only.
    pub attention: Option<Attention>,
    /// Settings of the server that are not secret, by name; callers who may observe the server read them.
    pub shown_settings: BTreeMap<String, String>,
    /// Streams of events and logs open at once, together with those of other dialects.
    pub streams: StreamLimit,
    /// Becomes true when the server is about to stop: workers are notified and get no further jobs.
    pub draining: watch::Receiver<bool>,
    /// Cancelled when the server stops: streams and waiting requests end.
    pub stopping: CancellationToken,
    /// The open streams of workers. While the server drains, a stream ends as soon as its worker holds nothing.
    pub workers: TaskTracker,
}

impl Default for Options {
    /// This crate's version, started now, the usual payload limit, never draining.
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Instant::now(),
            payload_bytes_max: ganger_types::limits::PAYLOAD_BYTES_MAX,
            unidentified: Identity::Anonymous,
            audit: Audit::to_log(),
            router: None,
            shards: None,
            attention: None,
            shown_settings: BTreeMap::new(),
            streams: StreamLimit::new(1_000),
            draining: watch::channel(false).1,
            stopping: CancellationToken::new(),
            workers: TaskTracker::new(),
        }
    }
}

/// Room in a request for everything but its largest payload.
const REQUEST_BYTES: usize = 4 << 20;
/// Interval between checks whether a node of a cluster is ready.
const READY_CHECK_EVERY: Duration = Duration::from_millis(500);
/// Bytes of a request to the health or the reflection service: a name.
const NAME_REQUEST_BYTES: usize = 1 << 10;

/// What all services share.
#[derive(Clone)]
pub(crate) struct ServiceContext {
    pub(crate) handle: Handle,
    pub(crate) options: Arc<Options>,
    pub(crate) holders: Holders,
    pub(crate) attention: Attention,
    /// Graphs on all shards that are known.
    pub(crate) graphs: Graphs,
}

/// All services over one shard. Clones share them.
#[derive(Clone)]
pub struct Services {
    gate: Arc<Authorization>,
    /// Ends the task that keeps the health service current.
    _health_task: Arc<DropGuard>,
    jobs: JobsServer<ServiceContext>,
    leases: LeasesServer<ServiceContext>,
    /// The routes to all services. Nearly all calls submit, lease or report, and need none.
    routes: axum::Router,
}

/// Path prefixes of the services whose calls take no route.
const JOBS: &str = "/ganger.v1.Jobs/";
const LEASES: &str = "/ganger.v1.Leases/";

impl Services {
    /// Makes the services. To be called within a Tokio runtime.
    pub fn new(handle: Handle, options: Options) -> Self {
        let request_bytes_max = REQUEST_BYTES.saturating_add(options.payload_bytes_max);
        let (reporter, health) = tonic_health::server::health_reporter();
        let shards = options.shards.clone();
        let shards = shards.unwrap_or_else(|| vec![handle.clone()].into());
        let attention = options.attention.clone();
        let attention = attention.unwrap_or_else(|| Attention::of_shards(shards.clone()));
        let owners = options.router.as_ref();
        let owners = owners.and_then(|router| router.topology().owners().cloned());
        let dropped = CancellationToken::new();
        let health_task = dropped.clone().drop_guard();
        let reporting = report_health(
            (shards, owners),
            options.draining.clone(),
            options.stopping.clone(),
            reporter,
        );
        tokio::spawn(async move { dropped.run_until_cancelled(reporting).await });
        let gate = Authorization {
            unidentified: options.unidentified.clone(),
            audit: options.audit.clone(),
        };
        let context = ServiceContext {
            holders: Holders::new(&handle),
            graphs: match &options.router {
                Some(router) => router.graphs(),
                None => Graphs::of_shards(std::slice::from_ref(&handle)),
            },
            options: Arc::new(options),
            attention,
            handle,
        };
        macro_rules! service {
            ($module:ident :: $server:ident) => {
                v1::$module::$server::new(context.clone())
                    .max_decoding_message_size(request_bytes_max)
            };
        }
        let jobs = service!(jobs_server::JobsServer);
        let leases = service!(leases_server::LeasesServer);
        let routes = Routes::new(jobs.clone())
            .add_service(leases.clone())
            .add_service(service!(queues_server::QueuesServer))
            .add_service(service!(schedules_server::SchedulesServer))
            .add_service(service!(operations_server::OperationsServer))
            .add_service(service!(insight_server::InsightServer))
            .add_service(service!(graphs_server::GraphsServer))
            .add_service(service!(admin_server::AdminServer))
            .add_service(health.max_decoding_message_size(NAME_REQUEST_BYTES))
            .add_service(reflection());
        Self {
            gate: Arc::new(gate),
            _health_task: Arc::new(health_task),
            jobs,
            leases,
            routes: routes.into_axum_router().reset_fallback(),
        }
    }

    /// Answers a call of any service. A call without the right to it, or of no service, is answered with its status.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        authorization::pass(&self.gate, request, |request| self.call(request)).await
    }

    async fn call(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path();
        let answered = if path.starts_with(JOBS) {
            self.jobs.clone().call(request).await
        } else if path.starts_with(LEASES) {
            self.leases.clone().call(request).await
        } else {
            let Ok(response) = self.routes.clone().call(request).await;
            return response;
        };
        let Ok(response) = answered;
        response.map(Body::new)
    }
}

/// All services over one shard as an HTTP router, which has no other routes. To be called within a Tokio runtime.
pub fn router(handle: Handle, options: Options) -> axum::Router {
    let services = Services::new(handle, options);
    axum::Router::new().fallback(move |request: Request<Body>| {
        let services = services.clone();
        async move { services.answer(request).await }
    })
}

fn reflection() -> impl tonic::codegen::Service<
    http::Request<tonic::body::Body>,
    Response = http::Response<tonic::body::Body>,
    Error = std::convert::Infallible,
    Future: Send,
> + tonic::server::NamedService
+ Clone
+ Sync
+ Send {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(ganger_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors are made together with the code")
        .max_decoding_message_size(NAME_REQUEST_BYTES)
}

/// Keeps the standard health service current: serving while the shards are ready and the server does not drain. Ends its streams when
/// the server stops.
async fn report_health(
    (shards, owners): (ShardSet, Option<Owners>),
    mut draining: watch::Receiver<bool>,
    stopping: CancellationToken,
    mut reporter: tonic_health::server::HealthReporter,
) {
    use tonic_health::ServingStatus;
    let mut serving = ServingStatus::Serving;
    for shard in &*shards.now() {
        if matches!(shard.ready().await, Health::Stopped { .. }) {
            serving = ServingStatus::NotServing;
        }
    }
    if let Some(owners) = owners {
        let following = follow_owners(&owners, &mut reporter);
        tokio::select! {
            () = following => {}
            _ = draining.wait_for(|draining| *draining) => {}
        }
    } else {
        reporter.set_service_status("", serving).await;
    }
    if draining.wait_for(|draining| *draining).await.is_ok() {
        reporter
            .set_service_status("", ServingStatus::NotServing)
            .await;
    }
    stopping.cancelled().await;
    reporter.clear_service_status("").await;
}

/// Keeps the health service current for a node of a cluster, which is ready or not by turns.
async fn follow_owners(owners: &Owners, reporter: &mut tonic_health::server::HealthReporter) {
    use tonic_health::ServingStatus;
    let mut last = None;
    loop {
        let is_ready = owners.now().is_ready;
        if last.replace(is_ready) != Some(is_ready) {
            let status = if is_ready {
                ServingStatus::Serving
            } else {
                ServingStatus::NotServing
            };
            reporter.set_service_status("", status).await;
        }
        tokio::time::sleep(READY_CHECK_EVERY).await;
    }
}
