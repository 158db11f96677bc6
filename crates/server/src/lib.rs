//! The server: configuration, listener, authentication, metrics, start and stop.
//!
//! It wires the others together: shards behind one port that serves HTTP/1.1, HTTP/2 and gRPC,
//! encrypted if it has a certificate. Clients of Redis and of QuantumLeap have ports of their own.

#![forbid(unsafe_code)]

mod bind;
mod bodies;
mod config;
mod error;
mod fair;
mod impersonation;
mod listen;
mod log;
mod notify;
mod peers;
mod port_handler;
mod quantumleap;
mod run;
mod secret;
mod security;
mod shard_dispatch;
mod shards;
mod start;
mod telemetry;

pub use config::{
    Config, ConfigError, DB_IN_MEMORY, Flag, KEYS, Key, Limits, LogFormat, Tls, load,
};
pub use error::StartError;
pub use log::start_log;
pub use run::run;
pub use secret::Secret;
pub use security::Require;
pub use start::{Running, start};
