//! The settings of the QuantumLeap port, and the variables that are QuantumLeap's own.

use std::ffi::OsString;
use std::path::PathBuf;

use ganger_ngsi::environment::{self, Environment};
use ganger_types::Namespace;

use super::keys::{Key, path};
use super::source::SetKeys;
use super::{Config, ConfigError};

/// Settings of the QuantumLeap port.
#[derive(Clone, Debug, Default)]
pub struct QuantumLeapPort {
    /// Address to listen on for NGSI notifications, as QuantumLeap does; `None` (default) for no such port.
    pub addr: Option<String>,
    /// The namespace of the jobs that notifications become. Default `default`.
    pub namespace: Namespace,
    /// Values of QuantumLeap's own variables, which [`load`](super::load) reads if the port is configured; `None` for
    /// their defaults.
    pub environment: Option<Environment>,
    /// Directory for samples of durations and resource usage; `None` (default) to take none.
    pub telemetry_dir: Option<PathBuf>,
}

/// Every setting of the port.
pub(super) const KEYS: &[Key] = &[
    Key::new(
        "quantumleap",
        "",
        "address to listen on for NGSI notifications, such as 127.0.0.1:8668; :PORT is loopback",
        |config, value| {
            config.quantumleap.addr = Some(value.to_owned());
            Ok(())
        },
    ),
    Key::new(
        "quantumleap_namespace",
        "default",
        "namespace of the jobs that notifications become",
        |config, value| {
            config.quantumleap.namespace =
                Namespace::new(value).map_err(|error| error.to_string())?;
            Ok(())
        },
    ),
    Key::new(
        "telemetry_dir",
        "",
        "directory for samples of durations and resource usage, in CSV files",
        |config, value| {
            config.quantumleap.telemetry_dir = Some(path(value)?);
            Ok(())
        },
    ),
];

/// Reads QuantumLeap's own variables if the port is configured. Their log level applies if ganger's own is not set.
pub(super) fn read_variables(
    config: &mut Config,
    given: &SetKeys,
    variables: &[(OsString, OsString)],
) -> Result<(), ConfigError> {
    if config.quantumleap.addr.is_none() {
        return Ok(());
    }
    let variable = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| *name == *wanted);
        found.map(|(_, value)| value.to_string_lossy().into_owned())
    };
    let environment = environment::read(variable, |path| std::fs::read_to_string(path));
    let environment = environment.map_err(|error| ConfigError {
        place: error.variable.to_owned(),
        reason: error.reason,
    })?;
    if let Some(level) = environment.log_level
        && !given.contains("log")
    {
        level.clone_into(&mut config.log);
    }
    config.quantumleap.environment = Some(environment);
    Ok(())
}
