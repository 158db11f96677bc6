//! What is possible on this disk: a log and nothing else, and a queue server that does no more than it must.
//!
//! The server has a thread a connection, an append-only file that is preallocated, one flush for all that wait, and a
//! queue in memory. Enqueues and completions are durable before they are answered. A lease is not: after a restart every
//! job that was not completed would be delivered again.

mod client;
mod journal;
#[cfg(feature = "ganger")]
pub(crate) mod log;
mod protocol;
mod server;

pub use client::Bare;
pub use server::BareServer;
