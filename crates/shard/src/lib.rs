//! Owns one engine and one store: turns, commits, waiting workers, subscriptions.
//!
//! It keeps one promise: nobody hears of anything before it is durable.
//!
//! [`Shard::start`] gives a [`Handle`]; [`core`] is the pipeline behind it as a state machine
//! without threads and clocks, for the simulator.

#![forbid(unsafe_code)]

mod admission;
mod bulk;
pub mod clock;
mod commit_executor;
pub mod core;
mod error;
mod events;
mod handle;
mod listing;
mod message_listener;
pub mod metrics;
mod readers;
mod runs;
mod settings;
mod shard;
mod spec;
mod ticket;

use ganger_types::{Bytes, Grant};

// What handles return of the store's words, so that dialects need not know the store.
pub use ganger_store::{LogChunk, StoredJob};

pub use crate::bulk::{BulkAction, BulkResult};
pub use crate::clock::{Clock, ManualClock, SystemClock, TimeLine};
pub use crate::error::CallError;
pub use crate::events::Subscription;
pub use crate::handle::Handle;
pub use crate::listing::Page;
pub use crate::message_listener::Listener;
pub use crate::metrics::{Histogram, MetricsSnapshot, ShardMetrics};
pub use crate::runs::RunMetrics;
pub use crate::settings::{GROUP_WAIT_MAX, Hooks, PipelinePoint, Settings, StopCause};
pub use crate::shard::Shard;

/// A job handed out, with what its program needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The grant: the job and its lease.
    pub grant: Grant,
    /// The job's payload bytes.
    pub payload: Bytes,
    /// Positional inputs in order: values, results of dependencies, `null` for ignored ones.
    pub inputs: Vec<Bytes>,
}

/// Whether and why the shard can or cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The shard works without restriction.
    Ready,
    /// Loading: jobs read so far.
    Starting {
        /// Number of jobs read so far.
        jobs: u64,
    },
    /// No new work for lack of space; the rest goes on.
    Full,
    /// It does not write any more, and why.
    Stopped {
        /// The reason why the shard stopped.
        reason: String,
    },
}
