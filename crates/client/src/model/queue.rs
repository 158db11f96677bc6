//! Queues and namespaces.

use std::time::{Duration, SystemTime};

use super::{NamespaceSettings, QueueCounts, QueueSettings};

/// A queue as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// Name of the queue.
    pub queue: String,
    /// What an operator set.
    pub settings: QueueSettings,
    /// Number of jobs in each state.
    pub counts: QueueCounts,
    /// Schedules that feed it.
    pub schedules: u64,
    /// Since when the oldest ready job is ready.
    pub oldest_ready_for: Option<Duration>,
    /// When it was first used.
    pub created_at: SystemTime,
    /// Number of jobs ever enqueued in the queue.
    pub enqueued_total: u64,
    /// Jobs that ever ended.
    pub finished_total: u64,
}

/// A namespace as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// Name of the namespace.
    pub namespace: String,
    /// What an operator set.
    pub settings: NamespaceSettings,
}
