//! The server: configuration, listener, authentication, metrics, start and stop.
//!
//! It wires the others together: one shard behind one port that serves HTTP/1.1, HTTP/2 and gRPC.

#![forbid(unsafe_code)]

mod config;
mod doors;
mod error;
mod listen;
mod log;
mod run;
mod secret;
mod start;

pub use config::{Config, ConfigError, DB_IN_MEMORY, Flag, KEYS, Key, Limits, LogFormat, load};
pub use error::StartError;
pub use log::start_log;
pub use run::run;
pub use secret::Secret;
pub use start::{Running, start};
