//! The QuantumLeap port: the first shard, behind the interface of QuantumLeap, within the limits of the main port.

use ganger_access::Identity;
use ganger_dialect_quantumleap::{Service, Settings};
use ganger_ngsi::environment::{self, Environment};
use ganger_shard::Handle;

use crate::config::{Config, ConfigError};
use crate::error::StartError;
use crate::security::Security;
use crate::telemetry::Telemetry;

/// The interface over a shard.
pub(crate) fn service(
    config: &Config,
    shard: &Handle,
    security: &Security,
    telemetry: Option<&Telemetry>,
) -> Result<Service, StartError> {
    let environment = environment(config)?;
    tracing::info!(
        database = ?environment.database,
        is_offloading = environment.offload,
        retries_max = environment.retries_max,
        "notifications are for"
    );
    let settings = Settings {
        version: env!("CARGO_PKG_VERSION"),
        namespace: config.quantumleap_namespace.clone(),
        body_bytes_max: config.limits.body_bytes,
        lists_max: config.limits.streams,
        stranger: Identity::Anonymous,
        audit: security.audit.clone(),
        durations: telemetry.map(Telemetry::durations),
        ..Settings::new(environment)
    };
    Ok(Service::new(shard.clone(), settings))
}

/// What QuantumLeap's variables say; their defaults, if nobody has read them.
fn environment(config: &Config) -> Result<Environment, ConfigError> {
    if let Some(environment) = &config.quantumleap_environment {
        return Ok(environment.clone());
    }
    let nothing = |_: &str| None;
    let no_file = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    environment::read(nothing, no_file).map_err(|error| ConfigError {
        place: error.variable.to_owned(),
        reason: error.reason,
    })
}
