//! The load generator behind `ganger bench` and `cargo xtask bench-peers`.
//!
//! A *load* is a queue with connections that enqueue, take and complete jobs; [`Named`] lists those that are measured of
//! every system. The measurements ([`measure`]) and the loops of the connections are the same for all: a [`Peer`] opens the
//! connections, and a [`Link`] is one of them. Systems with a plain protocol implement [`BlockingPeer`]. The crate itself
//! has the raw lists of Redis ([`redis::Lists`]) and the bare server ([`Bare`]).
//!
//! With the feature `ganger` (on by default) the crate also reaches ganger over its four APIs, starts ganger servers,
//! measures several shards, and writes the report of `ganger bench`: see `Bench`.

#![forbid(unsafe_code)]
#![expect(
    clippy::missing_errors_doc,
    reason = "all fail with `Error`, whose variants say when"
)]

mod bare;
mod blocking;
mod error;
#[cfg(feature = "ganger")]
mod ganger;
pub mod http;
mod link;
mod load;
pub mod measure;
mod pace;
mod shape;
mod supply;
mod tasks;
mod used;

pub use bare::{Bare, BareServer};
pub use blocking::wire::Wire;
pub use blocking::{Blocking, BlockingLink, BlockingPeer, redis};
pub use error::Error;
#[cfg(feature = "ganger")]
pub use ganger::{Api, Bench, Kind, Plan, Report};
pub use link::{Link, Links, Peer, Role, Watch};
pub use load::Load;
pub use measure::Outcome;
pub use shape::{Messages, Method, Named, Shape};
pub use used::{Measured, Used, bytes_of_family, cpu_of, cpu_of_family, memory_of, rate};
