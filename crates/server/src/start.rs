//! Starting and stopping a server within a process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ganger_access::{Budget, Identity, StreamLimit};
use ganger_attention::alert::Alerts;
use ganger_attention::{Attention, ServerFacts, Sources};
use ganger_dialect_grpc::{EnqueueRelay, WorkerRelay};
use ganger_dialect_http::{HostCheck, Settings};
use ganger_metrics::{Exposition, Source};
use ganger_router::Router;
use ganger_shard::{Handle, Health, ShardSet, StopCause};
use ganger_types::ShardId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::audit_keeper;
use crate::bind::{self, BoundPort};
use crate::bodies::UnreadResponses;
use crate::config::Config;
use crate::error::StartError;
use crate::fair::Scheduler;
use crate::home_ports::HomePorts;
use crate::listen::{self, Counters, HttpPort};
use crate::part::{self, RunningPart};
use crate::peers::PeerConnector;
use crate::port_handler::{Backend, PortHandler};
use crate::security::{Protocol, Require, Security, follow_files};
use crate::shard_dispatch::{Dialects, ForwardedRequests, InFlight, ShardDispatch, StreamRelays};
use crate::shards::{open_all, stop_all};

/// Interval between checks whether a node of a cluster serves all its shards.
const READY_CHECK_EVERY: Duration = Duration::from_millis(50);

/// Handle of a running server.
pub struct Running {
    addr: SocketAddr,
    shards: ShardSet,
    stopping: CancellationToken,
    stop_requested: Arc<AtomicBool>,
    draining: watch::Sender<bool>,
    workers: TaskTracker,
    stop_timeout: Duration,
    ended: watch::Receiver<Option<(ShardId, StopCause)>>,
    listener: JoinHandle<()>,
    parts: Vec<RunningPart>,
    security: Arc<Security>,
    router: Router,
    /// The membership of this node in its cluster; `None` without one.
    #[cfg(feature = "postgres")]
    node: Option<crate::node::Node>,
    _scheduling: DropGuard,
    /// Ends the threads that accept connections when dropped.
    _listening: DropGuard,
}

/// Starts a server: listens, opens the store, and loads it in the background.
///
/// Requests that come before the store is loaded wait; `/healthz` and `/readyz` answer at once.
///
/// # Errors
/// If a setting cannot be used, the address is taken, or the store cannot be opened.
pub async fn start(mut config: Config) -> Result<Running, StartError> {
    let security = Arc::new(Security::load(&config)?);
    let main = bind::main_port(&config, &security)?;
    let prepared = part::prepare(&config, &security)?;

    let stores = crate::shards::find(&mut config, main.addr).await?;
    let (ended_out, ended) = watch::channel(None);
    let to_peers = PeerConnector::new(&config, Arc::clone(&security))?;
    let (shards, vacant) = match stores.vacant() {
        Some(vacant) => (ShardSet::empty(vacant.clone()), Some(vacant)),
        None => (open_all(&config, &stores, &ended_out).await?.into(), None),
    };
    let router = Router::start(shards.clone(), config.topology.clone(), Arc::new(to_peers));
    let (draining, drained) = watch::channel(false);
    let common = Arc::new(ServerContext {
        budget: Budget::new(config.limits.bytes_in_flight),
        streams: StreamLimit::new(config.limits.streams),
        readers: UnreadResponses::new(config.limits.write_timeout),
        scheduler: Scheduler::new(tokio::runtime::Handle::current().metrics().num_workers()),
        config,
        security,
        stopping: CancellationToken::new(),
        stop_requested: Arc::default(),
        counters: Arc::default(),
        workers: TaskTracker::new(),
    });
    let home = shards.first();
    let parts = prepared.into_iter().map(|open| open(&common, &home));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let attention = attention(&common, &main, &shards, &router);
    let of_parts = parts.iter().filter_map(|part| part.metrics.clone());
    let wiring = Wiring {
        common: Arc::clone(&common),
        part_metrics: of_parts.chain(stores.metrics()).collect(),
        router: router.clone(),
        shards: shards.clone(),
        attention: attention.clone(),
        forwarded: Arc::default(),
        started: Instant::now(),
        addr: main.addr,
        drained,
    };
    let over_home = parts.iter().filter_map(|part| part.home_port.clone());
    let dispatcher = wiring.dispatcher(vacant.as_ref(), over_home.collect());
    #[cfg(feature = "postgres")]
    let dispatcher = dispatcher.with_marks(stores.marks());
    #[cfg(feature = "dashboard")]
    let dispatcher = dispatcher.with_dashboard(crate::dashboard::open(
        &common, &shards, &router, &attention,
    )?);
    let dispatcher = Arc::new(dispatcher);
    let (security, stopping) = (Arc::clone(&common.security), common.stopping.clone());
    let stop_requested = Arc::clone(&common.stop_requested);
    let listening = stopping.clone().drop_guard();
    let (workers, stop_timeout) = (common.workers.clone(), common.config.stop_timeout);
    let alerts_every = common.config.alerts_every;
    tokio::spawn(follow_files(Arc::clone(&security), stopping.clone()));
    let audit = security.audit.clone();
    tokio::spawn(audit_keeper::run(audit, shards.clone(), stopping.clone()));
    tokio::spawn(common.readers.clone().cut_unread(stopping.clone()));
    // The scheduler runs until the last connection has ended, which is after `stopping`.
    let scheduling = CancellationToken::new();
    tokio::spawn(common.scheduler.clone().dispatch(scheduling.clone()));
    let parts = parts
        .into_iter()
        .map(|part| (part.serve)(&common, &dispatcher));
    let parts = parts.collect::<Result<_, _>>()?;
    crate::alerts::start(&attention, alerts_every, &stopping);
    #[cfg(feature = "postgres")]
    let node = crate::node::start(crate::node::NodeContext {
        stores: &stores,
        config: &common.config,
        wiring,
        dispatcher: &dispatcher,
        ended: ended_out,
    })?;
    let (addr, listener) = common.serve(main, Arc::new(dispatcher))?;
    Ok(Running {
        addr,
        shards,
        stopping,
        stop_requested,
        draining,
        workers,
        stop_timeout,
        ended,
        listener,
        parts,
        security,
        router,
        #[cfg(feature = "postgres")]
        node,
        _scheduling: scheduling.drop_guard(),
        _listening: listening,
    })
}

/// State shared by all ports.
pub(crate) struct ServerContext {
    pub(crate) config: Config,
    pub(crate) security: Arc<Security>,
    pub(crate) stopping: CancellationToken,
    /// Whether the server was asked to stop, which is before `stopping`.
    stop_requested: Arc<AtomicBool>,
    counters: Arc<Counters>,
    /// Memory budget of all requests in progress.
    pub(crate) budget: Budget,
    /// Limit of open streams.
    streams: StreamLimit,
    /// Responses that are being read.
    readers: UnreadResponses,
    /// Decides which connections run first.
    pub(crate) scheduler: Scheduler,
    workers: TaskTracker,
}

impl ServerContext {
    /// Returns the limit of open streams.
    #[cfg(feature = "dashboard")]
    pub(crate) fn streams(&self) -> &StreamLimit {
        &self.streams
    }

    /// Serves HTTP on a port.
    pub(crate) fn serve(
        &self,
        bound: BoundPort,
        backend: Arc<dyn Backend>,
    ) -> Result<(SocketAddr, JoinHandle<()>), StartError> {
        let handler = PortHandler {
            backend,
            host_check: HostCheck {
                hosts: self.config.hosts.clone(),
                is_secured: self.security.require(Protocol::Http) != Require::Nothing,
            },
            security: Arc::clone(&self.security),
            budget: self.budget.clone(),
            readers: self.readers.clone(),
        };
        let served = listen::serve(HttpPort {
            socket: bound.listener,
            handler,
            limits: self.config.limits.clone(),
            scheduler: self.scheduler.clone(),
            counters: Arc::clone(&self.counters),
            stopping: self.stopping.clone(),
            stop_requested: Arc::clone(&self.stop_requested),
            stop_timeout: self.config.stop_timeout,
        });
        let served = served.map_err(|error| StartError::System {
            doing: "start the thread that accepts connections",
            reason: error.to_string(),
        })?;
        Ok((bound.addr, served))
    }
}

impl Running {
    /// Returns the address that the server listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the address of the port of a feature, `redis` or `quantumleap`; `None` if it is not configured, or
    /// this build lacks it.
    pub fn addr_of(&self, feature: &str) -> Option<SocketAddr> {
        let part = self.parts.iter().find(|part| part.feature == feature)?;
        part.port.as_ref().map(|(addr, _)| *addr)
    }

    /// Whether the server uses TLS.
    pub fn is_encrypted(&self) -> bool {
        self.security.is_encrypted()
    }

    /// Reads certificates, tokens and rights again, and reopens the audit log. A file that cannot be used is refused
    /// and logged; the old content stays in use. Runs by itself when a file changes.
    pub fn reload(&self) {
        self.security.reload();
    }

    /// Returns the default shard, for requests that name none.
    pub fn shard(&self) -> Handle {
        self.shards.first()
    }

    /// Returns the shards of this moment; a node of a cluster may have none.
    pub fn shards(&self) -> Arc<[Handle]> {
        self.shards.now()
    }

    /// Waits until all stores are loaded and requests are served, or a shard has ended.
    pub async fn ready(&self) -> Health {
        if let Some(owners) = self.router.topology().owners() {
            while !owners.now().is_ready {
                tokio::time::sleep(READY_CHECK_EVERY).await;
            }
        }
        let mut all = Health::Ready;
        for shard in &*self.shards() {
            match shard.ready().await {
                Health::Ready => {}
                Health::Full => all = Health::Full,
                other => return other,
            }
        }
        all
    }

    /// Waits until a shard ends by itself; returns the shard and the cause.
    pub async fn ended(&self) -> (ShardId, StopCause) {
        let mut ended = self.ended.clone();
        let first = ended
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|first| first.clone());
        first.unwrap_or_else(|| (self.shard().id().clone(), StopCause::Requested))
    }

    /// Stops the server. A node of a cluster first hands its shards over to other nodes. Then workers get no new jobs
    /// and report those that they hold; other requests are served meanwhile, and idle workers cause no delay. Then long
    /// polls and streams end, requests in flight are answered, and the store is closed. Each of the two phases takes at most the stop timeout. Meanwhile every HTTP/1 response
    /// closes its connection, so that clients send nothing on one that is about to end.
    pub async fn stop(self) {
        self.stop_requested.store(true, Ordering::Relaxed);
        #[cfg(feature = "postgres")]
        if let Some(node) = &self.node {
            node.hand_over_all().await;
        }
        self.draining.send_replace(true);
        self.workers.close();
        let reported = tokio::time::timeout(self.stop_timeout, self.workers.wait()).await;
        if reported.is_err() {
            let (workers, after) = (self.workers.len(), self.stop_timeout);
            tracing::warn!(
                workers,
                ?after,
                "workers still hold jobs; their streams end, and they report once a server is back"
            );
        }
        self.stopping.cancel();
        // The listener's task ends by itself; a panic in it has been reported.
        let _ = self.listener.await;
        let mut at_stop = Vec::new();
        for part in self.parts {
            if let Some((_, listener)) = part.port {
                let _ = listener.await;
            }
            at_stop.extend(part.at_stop);
        }
        self.security.audit.finish();
        #[cfg(feature = "postgres")]
        if let Some(node) = &self.node {
            node.take_no_more();
        }
        let kept = audit_keeper::pass_on(&self.security.audit, &self.shards.first()).await;
        if let Err((error, records)) = kept {
            tracing::warn!(%error, records, "records of the audit log are not in the store");
        }
        stop_all(&self.shards.now()).await;
        #[cfg(feature = "postgres")]
        if let Some(node) = self.node {
            node.leave().await;
        }
        for last in at_stop {
            last();
        }
    }
}

/// Builds the dialects over every shard.
pub(crate) struct Wiring {
    common: Arc<ServerContext>,
    /// Metrics of the optional parts.
    part_metrics: Vec<Source>,
    pub(crate) router: Router,
    shards: ShardSet,
    attention: Attention,
    forwarded: Arc<ForwardedRequests>,
    started: Instant,
    addr: SocketAddr,
    drained: watch::Receiver<bool>,
}

impl Wiring {
    /// Returns the dispatcher behind the main port.
    fn dispatcher(&self, vacant: Option<&Handle>, ports: HomePorts) -> ShardDispatch {
        let dispatcher = ShardDispatch::new(
            self.router.clone(),
            vacant.map(|vacant| self.dialects(vacant)),
            self.common.security.audit.clone(),
            Arc::clone(&self.forwarded),
            StreamRelays {
                workers: WorkerRelay {
                    draining: self.drained.clone(),
                    stopping: self.common.stopping.clone(),
                    reopened: Arc::clone(&self.forwarded.streams_moved),
                },
                batches: EnqueueRelay {
                    stopping: self.common.stopping.clone(),
                    reopened: Arc::clone(&self.forwarded.answers_moved),
                },
            },
        )
        .with_ports(ports);
        for shard in &*self.shards.now() {
            dispatcher.put(shard, self.dialects(shard));
        }
        dispatcher
    }

    /// Makes the dialects over a shard. Call it within a Tokio runtime.
    pub(crate) fn dialects(&self, shard: &Handle) -> Dialects {
        // Long polls and streams end with the server, and when the shard moves to another node.
        let leaving = self.common.stopping.child_token();
        let may_move = self.router.topology().owners().is_some();
        Dialects {
            http: self.http(shard, leaving.clone()),
            grpc: self.grpc(shard, self.drained.clone(), leaving.clone()),
            in_flight: InFlight::new(may_move, leaving),
        }
    }

    fn http(&self, shard: &Handle, stopping: CancellationToken) -> axum::Router {
        let ServerContext {
            config, security, ..
        } = &*self.common;
        let is_open = is_insecure(self.addr, security);
        let settings = Settings {
            version: env!("CARGO_PKG_VERSION"),
            body_bytes_max: config.limits.body_bytes,
            graph_bytes_max: config.limits.graph_bytes,
            line_bytes_max: config.limits.line_bytes,
            streams: self.common.streams.clone(),
            stopping,
            is_insecure: is_open,
            stranger: Identity::Anonymous,
            audit: security.audit.clone(),
            router: Some(self.router.clone()),
            shards: Some(self.shards.clone()),
            attention: Some(self.attention.clone()),
            started_at: self.started,
            shown_settings: config.shown(),
            more_metrics: self.server_metrics(),
        };
        ganger_dialect_http::routes(shard.clone(), settings)
    }

    /// Returns the metrics of the server itself and of its other ports.
    fn server_metrics(&self) -> Source {
        let counters = Arc::clone(&self.common.counters);
        let security = Arc::clone(&self.common.security);
        let (forwarded, started) = (Arc::clone(&self.forwarded), self.started);
        let of_parts = self.part_metrics.clone();
        let of_alerts = crate::alerts::metrics(Arc::clone(self.attention.alerts()));
        Arc::new(move |out| {
            metrics(&counters, &forwarded, &security, started, out);
            of_alerts(out);
            for add_to in &of_parts {
                add_to(out);
            }
        })
    }

    fn grpc(
        &self,
        shard: &Handle,
        draining: watch::Receiver<bool>,
        stopping: CancellationToken,
    ) -> ganger_dialect_grpc::Services {
        let options = ganger_dialect_grpc::Options {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            draining,
            stopping,
            workers: self.common.workers.clone(),
            unidentified: Identity::Anonymous,
            audit: self.common.security.audit.clone(),
            router: Some(self.router.clone()),
            shards: Some(self.shards.clone()),
            attention: Some(self.attention.clone()),
            shown_settings: self.common.config.shown(),
            streams: self.common.streams.clone(),
            ..ganger_dialect_grpc::Options::default()
        };
        ganger_dialect_grpc::Services::new(shard.clone(), options)
    }
}

/// Whether other machines can use the server without encryption or without credentials.
fn is_insecure(addr: SocketAddr, security: &Security) -> bool {
    !(addr.ip().is_loopback() || security.is_encrypted() && security.is_checked())
}

/// Makes the finder of what needs attention.
fn attention(
    common: &ServerContext,
    main: &BoundPort,
    shards: &ShardSet,
    router: &Router,
) -> Attention {
    let (security, addr) = (Arc::clone(&common.security), main.addr);
    Attention::new(Sources {
        shards: shards.clone(),
        router: Some(router.clone()),
        alerts: Arc::new(Alerts::new(common.config.alerts.clone())),
        server: Arc::new(move || ServerFacts {
            is_insecure: is_insecure(addr, &security),
            certificate_ends_at: security.certificate_ends_at(),
        }),
    })
}

/// Adds the metrics of the process.
fn metrics(
    counters: &Counters,
    forwarded: &ForwardedRequests,
    security: &Security,
    started: Instant,
    out: &mut Exposition,
) {
    let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
    out.gauge("ganger_connections", "Connections open now.")
        .sample(&[], read(&counters.open));
    for (name, help, number) in [
        (
            "ganger_connections_total",
            "Connections accepted since the start.",
            &counters.accepted,
        ),
        (
            "ganger_connections_refused_total",
            "Connections closed at once because their address had too many.",
            &counters.refused,
        ),
        (
            "ganger_handshakes_failed_total",
            "Failed TLS handshakes.",
            &counters.handshakes_failed,
        ),
        (
            "ganger_logins_failed_total",
            "Wrong tokens presented since the start.",
            &security.logins_failed,
        ),
        (
            "ganger_requests_passed_on_total",
            "Requests forwarded to the server of another shard.",
            &forwarded.count,
        ),
        (
            "ganger_requests_unreached_total",
            "Forwarded requests whose shard could not be reached.",
            &forwarded.failed,
        ),
        (
            "ganger_worker_streams_moved_total",
            "Streams of workers that went on at another node of the cluster after their shard moved.",
            &*forwarded.streams_moved,
        ),
        (
            "ganger_answers_moved_total",
            "Waits, logs, and streams of events and of batches that went on at another node of the cluster after their shard moved.",
            &*forwarded.answers_moved,
        ),
    ] {
        out.counter(name, help).sample(&[], read(number));
    }
    let waiting = u64::try_from(forwarded.waiting.now()).unwrap_or(u64::MAX);
    out.gauge(
        "ganger_requests_waiting",
        "Requests that wait for a node that serves their shard.",
    )
    .sample(&[], waiting);
    out.gauge(
        "ganger_uptime_seconds",
        "Seconds since the server was started.",
    )
    .sample(&[], started.elapsed().as_secs());
}
