//! The Redis port: the Redis protocol over the first shard, within the limits of the main port.

use std::sync::Arc;

use ganger_dialect_resp::{Port, Settings};
use ganger_shard::Handle;

use crate::bind::{self, BoundPort};
use crate::config::Config;
use crate::error::StartError;
use crate::listen;
use crate::part::{Open, Part, RunningPart};
use crate::security::{Protocol, Security};
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
    let port = bound.map(|bound| {
        let port = Port::new(shard.clone(), settings(common, &bound));
        (bound, port)
    });
    let counters = port.as_ref().map(|(_, port)| Arc::clone(port.counters()));
    Part {
        metrics: counters.map(|counters| -> ganger_metrics::Source {
            Arc::new(move |out| counters.metrics(out))
        }),
        serve: Box::new(|common| Ok(serve(common, port))),
    }
}

/// Serves the port in a separate task.
fn serve(common: &ServerContext, port: Option<(BoundPort, Port)>) -> RunningPart {
    let port = port.map(|(bound, port)| {
        let served = listen::serve_resp(
            bound.listener,
            port,
            Arc::clone(&common.security),
            common.config.limits.clone(),
            common.scheduler.clone(),
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
