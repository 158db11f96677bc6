//! The QuantumLeap port: QuantumLeap's API over the first shard, within the limits of the main port; and samples in
//! the form of QuantumLeap's telemetry.

mod telemetry;

use std::sync::Arc;

use axum::body::Body;
use futures::future::{BoxFuture, FutureExt as _};
use ganger_access::Identity;
use ganger_dialect_quantumleap::{Peer, Service, Settings};
use ganger_ngsi::environment::{self, Environment};
use ganger_shard::Handle;
use http::request::Parts;
use http::{HeaderMap, Request, Response};

use self::telemetry::Telemetry;
use crate::bind::{self, BoundPort};
use crate::config::{Config, ConfigError};
use crate::error::StartError;
use crate::impersonation::ON_BEHALF;
use crate::part::{Open, Part, RunningPart};
use crate::port_handler::{Backend, PeerAddress};
use crate::security::{Protocol, Security};
use crate::shard_dispatch::call_routes;
use crate::start::ServerContext;

/// Name of the part's feature.
pub(crate) const FEATURE: &str = "quantumleap";
/// Path that needs no credentials: whether the database responds.
const OPEN_PATHS: &[&str] = &["/health"];

/// Binds the port, if an address is configured, and opens the sample files, if a directory is.
pub(crate) fn prepare(config: &Config, security: &Security) -> Result<Open, StartError> {
    let settings = &config.quantumleap;
    let addr = settings.addr.as_deref();
    let clients = "NGSI notifications";
    let bound = bind::optional_port(config, security, addr, Protocol::Http, clients)?;
    let telemetry = settings.telemetry_dir.as_deref().map(Telemetry::open);
    let telemetry = telemetry.transpose()?;
    Ok(Box::new(|common, shard| {
        open(bound, telemetry, common, shard)
    }))
}

fn open(
    bound: Option<BoundPort>,
    telemetry: Option<Telemetry>,
    common: &ServerContext,
    shard: &Handle,
) -> Result<Part, StartError> {
    let port = match bound {
        Some(bound) => Some((bound, service(common, shard, telemetry.as_ref())?)),
        None => None,
    };
    let counted = port.as_ref().map(|(_, service)| service.clone());
    Ok(Part {
        metrics: counted
            .map(|service| -> ganger_metrics::Source { Arc::new(move |out| service.metrics(out)) }),
        serve: Box::new(|common| serve(common, port, telemetry)),
    })
}

/// Starts to serve the port and to sample resource usage.
fn serve(
    common: &ServerContext,
    port: Option<(BoundPort, Service)>,
    telemetry: Option<Telemetry>,
) -> Result<RunningPart, StartError> {
    if let Some(telemetry) = &telemetry {
        telemetry.follow_runtime(common.stopping.clone());
    }
    let served = |(bound, service): (BoundPort, Service)| {
        common.serve(bound, Arc::new(Routes(service.routes())))
    };
    Ok(RunningPart {
        feature: FEATURE,
        port: port.map(served).transpose()?,
        at_stop: telemetry.map(|telemetry| -> Box<dyn FnOnce() + Send + Sync> {
            Box::new(move || telemetry.flush())
        }),
    })
}

/// Returns the API over a shard.
fn service(
    common: &ServerContext,
    shard: &Handle,
    telemetry: Option<&Telemetry>,
) -> Result<Service, StartError> {
    let config = &common.config;
    let environment = environment(config)?;
    tracing::info!(
        database = ?environment.database,
        is_offloading = environment.offload,
        retries_max = environment.retries_max,
        "notifications are for"
    );
    let settings = Settings {
        version: env!("CARGO_PKG_VERSION"),
        namespace: config.quantumleap.namespace.clone(),
        body_bytes_max: config.limits.body_bytes,
        lists_max: config.limits.streams,
        stranger: Identity::Anonymous,
        audit: common.security.audit.clone(),
        durations: telemetry.map(Telemetry::durations),
        ..Settings::new(environment)
    };
    Ok(Service::new(shard.clone(), settings))
}

/// Returns the values of QuantumLeap's variables, or their defaults if they were not read.
fn environment(config: &Config) -> Result<Environment, ConfigError> {
    if let Some(environment) = &config.quantumleap.environment {
        return Ok(environment.clone());
    }
    let nothing = |_: &str| None;
    let no_file = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    environment::read(nothing, no_file).map_err(|error| ConfigError {
        place: error.variable.to_owned(),
        reason: error.reason,
    })
}

/// QuantumLeap's API over one shard. Callers are identified by the rules of HTTP.
struct Routes(axum::Router);

impl Backend for Routes {
    fn protocol(&self, _: &HeaderMap) -> Protocol {
        Protocol::Http
    }

    fn open_paths(&self) -> &'static [&'static str] {
        OPEN_PATHS
    }

    fn health_paths(&self) -> &'static [&'static str] {
        // Its health check queries the database, which may take long.
        &[]
    }

    fn first_page(&self) -> Option<&'static str> {
        None
    }

    fn insert_address(&self, _: Protocol, head: &mut Parts, from: PeerAddress) {
        head.extensions.insert(Peer(from.0));
    }

    fn answer<'a>(
        &'a self,
        _: Protocol,
        mut request: Request<Body>,
        identity: &'a Identity,
    ) -> BoxFuture<'a, Response<Body>> {
        // This port does not accept impersonation.
        request.headers_mut().remove(ON_BEHALF);
        request.extensions_mut().insert(identity.clone());
        call_routes(&self.0, request).boxed()
    }
}
