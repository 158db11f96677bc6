//! The structs that calls take and return; none of them is a message of the API.
//!
//! Points in time are [`SystemTime`], durations are [`Duration`], names are UTF-8 text. `None` means "absent" unless a
//! field says otherwise.

mod import;
mod insight;
mod job;
mod lease;
mod peer;
mod schedule;
mod view;

use std::time::Duration;

pub use ganger_document::view::alert::Alert;
pub use ganger_document::view::attempt::{Attempt, Attempts};
pub use ganger_document::view::attention::{Gravity, Item as AttentionItem};
pub use ganger_document::view::audit::{AuditLog, AuditRecord};
pub use ganger_document::view::change::{AffectedJobs, CancelEffects};
pub use ganger_document::view::cluster::{ClusterShard, ClusterShards, Node, NodeList};
pub use ganger_document::view::event::{Event, Happening, JobMoved};
pub use ganger_document::view::graph::{Graph as GraphView, GraphEdge, GraphJob};
pub use ganger_document::view::graphs::{
    CriticalPath, GraphBox, GraphItem, GraphLayout, GraphLine, GraphMember, GraphPoint,
    GraphSummary, Graphs, HoldingUp, StateCounts,
};
pub use ganger_document::view::history::HistoryEntry;
pub use ganger_document::view::job::{Failure, Job, JobCount, Lease as LeaseView, Page};
pub use ganger_document::view::names::{LabelCount, Labels, Names};
pub use ganger_document::view::operation::{Filter as OperationFilter, LeftOut, Operation};
pub use ganger_document::view::queue::{
    Asker, EffectiveSetting, NamespaceView, QueuePace, QueueReason, QueueView, QueueWhy,
};
pub use ganger_document::view::reason::{Explanation, JobAndState, Reason};
pub use ganger_document::view::schedule::{Schedule, ScheduleTime};
pub use ganger_document::view::series::{
    DurationBin, Durations, KindTotals, Kinds, Latency, Series, SeriesLine,
};
pub use ganger_document::view::server::{Server, ServerShard};
pub use ganger_document::view::statistics::{
    Bin, DurationSample, FailureGroup, FailuresOf, Statistics,
};
pub use ganger_document::view::whoami::Grant;
pub use ganger_document::view::worker::{HeldJob, Worker};
pub use ganger_types::command::TakeMode;
pub use ganger_types::{
    Backoff, CatchUp, Clock, DueOrder, FailurePolicy, JobState, Keep, NamespaceSettings,
    OperationState, Overlap, Progress, QueueCounts, QueueSettings, Retention, RetryPolicy,
};
pub use import::*;
pub use insight::*;
pub use job::*;
pub use lease::*;
pub use peer::*;
pub use schedule::*;
pub use view::*;

/// How long a finished job is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepFor {
    /// For this length of time.
    Time(Duration),
    /// Forever: retention never removes the job.
    Ever,
}

/// A list: of the shard of a client, or of all shards ([`Client::at_all_shards`](crate::Client::at_all_shards)).
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<T> {
    /// The entries, in the order of the list.
    pub entries: Vec<T>,
    /// Shards that could not be reached, whose entries are missing; empty for the list of one shard.
    pub unreachable: Vec<String>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            unreachable: Vec::new(),
        }
    }
}

/// What a drawing of a graph shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutOptions {
    /// Maximum number of boxes, 10 to 150; 0: 150.
    pub max: u32,
    /// Ids of boxes that are opened, at most 20.
    pub open: Vec<String>,
    /// Job whose surroundings are shown; `None`: the whole graph.
    pub focus: Option<String>,
    /// Steps that are shown in each direction of that job, 1 to 5; 0: 1.
    pub depth: u32,
}
