//! The Redis face of a ganger server: RESP2 and RESP3, raw keys, qless, transactions, publish and subscribe.
//!
//! Bytes become calls on the keys of a shard or of its qless, and answers become bytes. No rule of strings, lists and
//! qless is here: the engine has them. Commands that come in one read make one commit. qless is a feature of the build,
//! on by default; without it this port neither reads nor changes what a store holds of qless, and refuses scripts.
//!
//! The one table of commands is in `table.rs`; a new family of commands adds its rows there.

#![forbid(unsafe_code)]

mod batch;
mod client;
mod clients;
mod command;
mod connection;
mod counters;
mod encode;
mod hello;
mod hub;
mod info;
mod keys;
mod limits;
mod login;
mod memory;
mod number;
mod plan;
mod port;
mod pubsub;
#[cfg(feature = "qless")]
mod qless;
mod refusal;
mod request;
mod rights;
#[cfg(feature = "qless")]
mod script_library;
#[cfg(feature = "qless")]
mod script_reply;
mod scripts;
mod session;
mod settings;
mod shared;
mod table;
mod transaction;
mod unconfirmed_pops;
mod value;
mod words;

pub use counters::Counters;
pub use hub::Hub;
pub use login::{Login, LoginError};
pub use port::Port;
pub use request::{Decoder, ProtocolError, Request};
pub use settings::Settings;
pub use value::{Protocol, Value};
