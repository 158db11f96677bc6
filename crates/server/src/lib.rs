//! The server: configuration, listener, authentication, metrics, start and stop.
//!
//! This crate combines the others: shards behind one port that serves HTTP/1.1, HTTP/2 and gRPC, encrypted if there
//! is a certificate. Clients of Redis and of QuantumLeap have separate ports, which are features of the build:
//! `redis`, `qless` (the scripts of qless on the Redis port) and `quantumleap`, all on by default. So is `dashboard`,
//! the pages under `/ui` of the main port.

#![forbid(unsafe_code)]

mod alerts;
mod all_shards;
mod audit_keeper;
mod bind;
mod bodies;
#[cfg(any(feature = "redis", feature = "quantumleap"))]
mod by_turns;
#[cfg(feature = "redis")]
mod byte_stream;
mod config;
#[cfg(feature = "dashboard")]
mod dashboard;
mod error;
mod fair;
mod home_ports;
mod impersonation;
mod listen;
mod log;
#[cfg(feature = "postgres")]
mod node;
mod notify;
mod part;
mod peers;
mod port_handler;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "quantumleap")]
mod quantumleap;
#[cfg(feature = "redis")]
mod redis;
mod run;
mod secret;
mod security;
mod shard_dispatch;
mod shards;
mod start;

#[cfg(feature = "postgres")]
pub use config::PostgresStore;
#[cfg(feature = "quantumleap")]
pub use config::QuantumLeapPort;
#[cfg(feature = "redis")]
pub use config::RedisPort;
pub use config::{
    Config, ConfigError, DB_IN_MEMORY, Flag, Key, Limits, LogFormat, Tls, find_key, keys, load,
};
pub use error::StartError;
pub use log::start_log;
pub use run::run;
pub use secret::Secret;
pub use security::Require;
pub use start::{Running, start};
