//! Owns one engine and one store: turns, commits, waiting workers, subscriptions.
//!
//! Nothing becomes visible before it is durable.
//!
//! [`Shard::start`] returns a [`Handle`]; [`core`] is the pipeline behind it as a state machine without threads and
//! clocks, for the simulator.

#![forbid(unsafe_code)]

mod admission;
mod bulk;
pub mod clock;
mod commit_executor;
pub mod core;
mod error;
mod events;
mod failures;
mod handle;
mod inbox;
mod message_listener;
pub mod metrics;
mod numbers;
mod operations;
mod ownership;
mod pairs;
mod pause;
mod readers;
mod reply_slot;
mod runs;
pub mod series;
mod settings;
mod shard;
mod shard_set;
mod spec;
mod ticket;
mod vacant;
mod workers;

use ganger_types::{Bytes, Grant};

// Store types that handles return, so that dialects need not depend on the store.
pub use ganger_store::{
    Count, EndedPage, IndexedValue, LogChunk, Looked, StoredJob, ValueCount, ValuePage, ValueQuery,
    graph,
};

pub use crate::bulk::{BulkAction, BulkBounds, BulkResult};
pub use crate::clock::{Clock, ManualClock, SystemClock, TimeLine};
pub use crate::error::CallError;
pub use crate::events::{PastEvents, Subscription};
pub use crate::failures::GroupFacts;
pub use crate::handle::{
    GatheredRequests, GraphTotals, GroupView, Handle, NamesOf, NextPage, Page, worker_state,
};
pub use crate::message_listener::Listener;
pub use crate::metrics::{MetricsSnapshot, ShardMetrics};
pub use crate::numbers::ShardNumbers;
pub use crate::ownership::Ownership;
pub use crate::pause::PauseWatch;
pub use crate::runs::RunMetrics;
pub use crate::settings::{GROUP_WAIT_MAX, Hooks, PipelinePoint, Settings, StopCause};
pub use crate::shard::Shard;
pub use crate::shard_set::ShardSet;

/// A leased job with what its program needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The grant: the job and its lease.
    pub grant: Grant,
    /// The job's payload bytes.
    pub payload: Bytes,
    /// Positional inputs in order: values, results of dependencies, `null` for ignored dependencies.
    pub inputs: Vec<Bytes>,
}

/// Whether the shard can work, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The shard works without restriction.
    Ready,
    /// The shard is loading its jobs.
    Starting {
        /// Number of jobs read so far.
        jobs: u64,
    },
    /// The store does not answer. Calls are refused until it does; nothing acknowledged is lost.
    Unreachable {
        /// The reason why the store cannot be reached.
        reason: String,
    },
    /// The shard refuses new work for lack of space; everything else continues.
    Full,
    /// The shard has stopped writing.
    Stopped {
        /// The reason why the shard stopped.
        reason: String,
    },
}
