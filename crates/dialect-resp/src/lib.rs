//! The Redis dialect of a ganger server: RESP2 and RESP3, raw keys, qless, transactions, publish and subscribe.
//!
//! It parses commands into calls on raw keys or on qless, and encodes the answers. The rules of strings, lists and
//! qless are in the engine. Commands that arrive in one read make one commit. qless is a Cargo feature, on by
//! default; without it this port neither reads nor changes stored qless state, and refuses scripts.
//!
//! The table of all commands is in `table.rs`; a new family of commands adds its rows there.

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
mod relay;
mod relayed_session;
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
pub use relayed_session::RelayedSession;
pub use request::{Decoder, ProtocolError, Request};
pub use settings::Settings;
pub use value::{Protocol, Value};
