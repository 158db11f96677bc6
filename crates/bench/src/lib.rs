//! The load generator behind `ganger bench` and `cargo xtask bench-peers`.
//!
//! A *load* is a queue with connections that enqueue, lease and complete jobs. The measurements ([`enqueue`], [`flow`],
//! [`lives`], [`latency`]) are the same for every server; a [`Driver`] opens the connections. There are two drivers:
//! [`Calls`] for connections with one call at a time (HTTP, and the protocols of other queue servers), and `Streams`
//! for ganger's gRPC.
//!
//! With the feature `ganger` (on by default) the crate also starts ganger servers, measures several shards, and writes
//! the report of `ganger bench`: see `Bench`.

#![forbid(unsafe_code)]
#![expect(
    clippy::missing_errors_doc,
    reason = "all fail with `Error`, whose variants say when"
)]

mod blocking;
mod calls;
mod driver;
pub mod enqueue;
mod error;
pub mod flow;
pub mod http;
#[cfg(feature = "ganger")]
mod http_link;
pub mod latency;
pub mod lives;
mod load;
#[cfg(feature = "ganger")]
mod log;
mod measured;
#[cfg(feature = "ganger")]
mod plan;
#[cfg(feature = "ganger")]
mod report;
#[cfg(feature = "ganger")]
mod server;
#[cfg(feature = "ganger")]
mod servers;
#[cfg(feature = "ganger")]
mod shards;
#[cfg(feature = "ganger")]
mod streams;
#[cfg(feature = "ganger")]
mod target;

pub use blocking::{Blocking, BlockingLink, BlockingPeer};
pub use calls::{Calls, Link, Peer};
pub use driver::{Connection, Driver, Task, Work};
pub use error::Error;
pub use load::Load;
pub use measured::{Measured, Used, cpu_of, cpu_of_family, rate};
#[cfg(feature = "ganger")]
pub use plan::{Api, Bench, Kind, Plan};
#[cfg(feature = "ganger")]
pub use report::Report;

/// Number of connections that measure the highest rate of enqueueing alone and of leasing alone.
pub const CONNECTIONS: usize = 8;

/// Number of jobs in one enqueue, delivery and report of all loads except full lives and latency.
pub const BATCH: usize = 100;
