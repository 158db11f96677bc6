//! The Redis port: the Redis protocol over the first shard, within the limits of the main port.
//!
//! On a node of a cluster that does not serve this shard, a client authenticates here, and its connection passes to
//! the node that does (`relay`).

mod relay;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use futures::future::{BoxFuture, FutureExt as _};
use ganger_access::Identity;
use ganger_dialect_resp::{Counters, Login, Port, Settings};
use ganger_shard::{Handle, SystemClock};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::bind::{self, BoundPort};
use crate::by_turns::ByTurns;
use crate::config::Config;
use crate::error::StartError;
use crate::fair::Scheduler;
use crate::home_ports::HomePort;
use crate::listen;
use crate::part::{Open, Part, RunningPart};
use crate::security::{Protocol, Security};
use crate::shard_dispatch::ShardDispatch;
use crate::start::ServerContext;

/// Name of the part's feature.
pub(crate) const FEATURE: &str = "redis";

/// Binds the port, if an address is configured.
pub(crate) fn prepare(config: &Config, security: &Security) -> Result<Open, StartError> {
    let addr = config.redis.addr.as_deref();
    let clients = "clients of Redis";
    let bound = bind::optional_port(config, security, addr, Protocol::Resp, clients)?;
    Ok(Box::new(|common, shard| Ok(open(bound, common, shard))))
}

fn open(bound: Option<BoundPort>, common: &ServerContext, shard: &Handle) -> Part {
    let part = bound.map(|bound| {
        let reason = "another node serves the shard of this port";
        let vacant = Handle::vacant(shard.id(), reason, Arc::new(SystemClock));
        let part = Arc::new(RedisPart {
            entry: Port::new(vacant, settings(common, &bound)),
            here: ByTurns::new(common.stopping.clone()),
            security: Arc::clone(&common.security),
            scheduler: common.scheduler.clone(),
            addr: bound.addr,
        });
        (bound, part)
    });
    let served = part.as_ref().map(|(_, part)| Arc::clone(part));
    let counters = served.as_ref().map(|part| Arc::clone(part.counters()));
    Part {
        metrics: counters.map(|counters| -> ganger_metrics::Source {
            Arc::new(move |out| counters.metrics(out))
        }),
        home_port: served.map(|part| -> Arc<dyn HomePort> { part }),
        serve: Box::new(|common, dispatcher| Ok(serve(common, dispatcher, part))),
    }
}

/// Serves the port in a separate task.
fn serve(
    common: &ServerContext,
    dispatcher: &Arc<ShardDispatch>,
    bound: Option<(BoundPort, Arc<RedisPart>)>,
) -> RunningPart {
    let port = bound.map(|(bound, part)| {
        let served = listen::serve_resp(
            bound.listener,
            RedisService {
                part,
                dispatcher: Arc::clone(dispatcher),
            },
            common.config.limits.clone(),
            common.stopping.clone(),
            common.config.stop_timeout,
        );
        (bound.addr, tokio::spawn(served))
    });
    RunningPart {
        feature: FEATURE,
        port,
        at_stop: None,
    }
}

/// The Redis port over the default shard.
pub(crate) struct RedisPart {
    /// The port over no shard: clients authenticate there while another node serves the shard.
    entry: Port,
    /// The port over the shard, while it is here.
    here: ByTurns<Port>,
    pub(crate) security: Arc<Security>,
    pub(crate) scheduler: Scheduler,
    /// Address that the port listens on.
    addr: SocketAddr,
}

impl RedisPart {
    /// Returns the counters of the port.
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        self.entry.counters()
    }

    /// Returns the port over the shard; `None` while another node serves the shard.
    fn port(&self) -> Option<Port> {
        self.here.now()
    }
}

impl HomePort for RedisPart {
    fn feature(&self) -> &'static str {
        FEATURE
    }

    fn begin(&self, shard: &Handle) {
        self.here.begin(|turn| self.entry.over(shard.clone(), turn));
    }

    fn end(&self) {
        self.here.end();
    }

    fn answer<'a>(
        &'a self,
        request: Request<Body>,
        caller: &'a Identity,
    ) -> BoxFuture<'a, Response<Body>> {
        std::future::ready(self.answer_relayed(request, caller)).boxed()
    }
}

/// What serves the connections of the port.
#[derive(Clone)]
pub(crate) struct RedisService {
    pub(crate) part: Arc<RedisPart>,
    dispatcher: Arc<ShardDispatch>,
}

impl RedisService {
    /// Serves a connection until it ends: here, or through the node that serves the shard.
    pub(crate) async fn serve<S>(
        &self,
        stream: S,
        login: Arc<dyn Login>,
        from: SocketAddr,
        at: SocketAddr,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        if let Some(port) = self.part.port() {
            return port.serve(stream, login, from, at).await;
        }
        let dial = |session| relay::dial(&self.dispatcher, from, session);
        self.part.entry.relay(stream, login, from, at, dial).await;
    }
}

fn settings(common: &ServerContext, bound: &BoundPort) -> Settings {
    let config = &common.config;
    Settings {
        databases: config.redis.databases.clone(),
        may_flush: config.redis.allow_flush,
        write_timeout: config.limits.write_timeout,
        login_timeout: config.limits.header_timeout,
        tcp_port: bound.addr.port(),
        audit: common.security.audit.clone(),
        budget: common.budget.clone(),
        stopping: common.stopping.clone(),
    }
}
