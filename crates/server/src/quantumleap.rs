//! The QuantumLeap port: QuantumLeap's API over the first shard, within the limits of the main port; and samples in
//! the form of QuantumLeap's telemetry.

mod telemetry;

use std::sync::Arc;

use axum::body::Body;
use futures::future::{BoxFuture, FutureExt as _};
use ganger_access::Identity;
use ganger_dialect_quantumleap::{Peer, Service, Settings};
use ganger_ngsi::environment::{self, Environment};
use ganger_shard::{Handle, SystemClock};
use http::request::Parts;
use http::{HeaderMap, Request, Response};

use self::telemetry::Telemetry;
use crate::bind::{self, BoundPort};
use crate::by_turns::ByTurns;
use crate::config::{Config, ConfigError};
use crate::error::StartError;
use crate::home_ports::HomePort;
use crate::impersonation::ON_BEHALF;
use crate::part::{Open, Part, RunningPart};
use crate::port_handler::{Backend, PeerAddress};
use crate::security::{Protocol, Security};
use crate::shard_dispatch::{ShardDispatch, call_routes};
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
    let served = match bound {
        Some(bound) => {
            let reason = "another node serves the shard of this port";
            let vacant = Handle::vacant(shard.id(), reason, Arc::new(SystemClock));
            let part = QuantumLeapPart {
                elsewhere: Shown::new(service(common, vacant, telemetry.as_ref())?),
                here: ByTurns::new(common.stopping.clone()),
            };
            Some((bound, Arc::new(part)))
        }
        None => None,
    };
    let part = served.as_ref().map(|(_, part)| Arc::clone(part));
    let counted = part.clone();
    Ok(Part {
        metrics: counted.map(|part| -> ganger_metrics::Source {
            Arc::new(move |out| part.shown().service.metrics(out))
        }),
        home_port: part.map(|part| -> Arc<dyn HomePort> { part }),
        serve: Box::new(|common, dispatcher| serve(common, dispatcher, served, telemetry)),
    })
}

/// Starts to serve the port and to sample resource usage.
fn serve(
    common: &ServerContext,
    dispatcher: &Arc<ShardDispatch>,
    bound: Option<(BoundPort, Arc<QuantumLeapPart>)>,
    telemetry: Option<Telemetry>,
) -> Result<RunningPart, StartError> {
    if let Some(telemetry) = &telemetry {
        telemetry.follow_runtime(common.stopping.clone());
    }
    let served = |(bound, part): (BoundPort, Arc<QuantumLeapPart>)| {
        let dispatcher = Arc::clone(dispatcher);
        common.serve(bound, Arc::new(Routes { part, dispatcher }))
    };
    Ok(RunningPart {
        feature: FEATURE,
        port: bound.map(served).transpose()?,
        at_stop: telemetry.map(|telemetry| -> Box<dyn FnOnce() + Send + Sync> {
            Box::new(move || telemetry.flush())
        }),
    })
}

/// Returns the API over a shard.
fn service(
    common: &ServerContext,
    shard: Handle,
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
    Ok(Service::new(shard, settings))
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

/// The API over a shard, and its routes.
#[derive(Clone)]
struct Shown {
    service: Service,
    routes: axum::Router,
}

impl Shown {
    fn new(service: Service) -> Self {
        let routes = service.routes();
        Self { service, routes }
    }
}

/// QuantumLeap's API over the default shard.
struct QuantumLeapPart {
    /// The API over no shard, for what concerns none.
    elsewhere: Shown,
    /// The API over the shard, while it is here.
    here: ByTurns<Shown>,
}

impl QuantumLeapPart {
    /// Returns the API over the shard, or over none while another node serves it.
    fn shown(&self) -> Shown {
        self.here.now().unwrap_or_else(|| self.elsewhere.clone())
    }
}

impl HomePort for QuantumLeapPart {
    fn feature(&self) -> &'static str {
        FEATURE
    }

    fn begin(&self, shard: &Handle) {
        let service = self.elsewhere.service.over(shard.clone());
        self.here.begin(|_| Shown::new(service));
    }

    fn end(&self) {
        self.here.end();
    }

    fn answer<'a>(
        &'a self,
        mut request: Request<Body>,
        caller: &'a Identity,
    ) -> BoxFuture<'a, Response<Body>> {
        request.extensions_mut().insert(caller.clone());
        async move { call_routes(&self.shown().routes, request).await }.boxed()
    }
}

/// QuantumLeap's API here, or on the node that serves the default shard. Callers are identified by the rules of HTTP.
struct Routes {
    part: Arc<QuantumLeapPart>,
    dispatcher: Arc<ShardDispatch>,
}

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
        let is_here = self.part.here.now().is_some();
        // What needs no credentials concerns no shard, and nothing is forwarded without an identity.
        if is_here || *identity == Identity::Anonymous {
            return self.part.answer(request, identity);
        }
        self.dispatcher
            .forward_to_home(FEATURE, request, identity)
            .boxed()
    }
}
