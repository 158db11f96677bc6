//! Queues and namespaces. Their settings have the same form as in requests.

use std::time::{Duration, SystemTime};

use ganger_types::{NamespaceRecord, NamespaceSettings, QueueCounts, QueueSettings, reply};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::names::{QueueName, text};
use crate::settings::{NamespaceSettingsDocument, QueueSettingsDocument};
use crate::time::{Moment, calendar, moment, seconds_if_any};

/// Number of jobs in each state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueCounts)]
struct CountsView {
    blocked: u64,
    scheduled: u64,
    ready: u64,
    running: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
}

impl From<QueueCounts> for CountsView {
    fn from(counts: QueueCounts) -> Self {
        Self {
            blocked: counts.blocked,
            scheduled: counts.scheduled,
            ready: counts.ready,
            running: counts.running,
            succeeded: counts.succeeded,
            failed: counts.failed,
            cancelled: counts.cancelled,
        }
    }
}

/// Queue, its settings and its counts.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Queue)]
pub struct QueueView {
    /// Name of the queue.
    pub queue: String,
    /// Number of jobs in each state; finished ones count while they are kept.
    #[serde(serialize_with = "counts")]
    #[schema(value_type = CountsView)]
    pub counts: QueueCounts,
    /// Time for which the oldest ready job has waited, in documents in seconds; absent if no job is ready.
    #[serde(
        rename = "oldest_ready_seconds",
        serialize_with = "seconds_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub oldest_ready_for: Option<Duration>,
    /// Number of schedules that make jobs for the queue.
    pub schedules: u64,
    /// Time of the queue's first use.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub created_at: SystemTime,
    /// Number of jobs ever enqueued in the queue.
    pub enqueued_total: u64,
    /// Number of jobs of the queue that ever ended.
    pub finished_total: u64,
    /// Settings of the queue, as configured.
    #[serde(serialize_with = "queue_settings")]
    #[schema(value_type = QueueSettingsDocument)]
    pub settings: QueueSettings,
}

/// One page of the queues.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queues)]
pub struct QueuesDoc {
    /// Queues of this page, by name.
    pub queues: Vec<QueueView>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<QueueName>,
}

impl From<reply::QueueView> for QueueView {
    fn from(view: reply::QueueView) -> Self {
        Self {
            queue: text(view.queue.as_bytes()),
            counts: view.counts,
            oldest_ready_for: view.oldest_ready_for,
            schedules: view.schedules,
            created_at: calendar(view.created_at),
            enqueued_total: view.enqueued_total,
            finished_total: view.finished_total,
            settings: view.settings,
        }
    }
}

/// Namespace and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Namespace)]
pub struct NamespaceView {
    /// Name of the namespace.
    pub namespace: String,
    /// Settings of the namespace, as configured.
    #[serde(serialize_with = "namespace_settings")]
    #[schema(value_type = NamespaceSettingsDocument)]
    pub settings: NamespaceSettings,
}

/// List of the namespaces.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Namespaces)]
pub struct NamespacesDoc {
    /// Namespaces in the order of their names.
    pub namespaces: Vec<NamespaceView>,
}

impl From<NamespaceRecord> for NamespaceView {
    fn from(record: NamespaceRecord) -> Self {
        Self {
            namespace: text(record.namespace.as_bytes()),
            settings: record.settings,
        }
    }
}

fn counts<S: Serializer>(counts: &QueueCounts, serializer: S) -> Result<S::Ok, S::Error> {
    CountsView::from(*counts).serialize(serializer)
}

fn queue_settings<S: Serializer>(
    settings: &QueueSettings,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    QueueSettingsDocument::from(settings).serialize(serializer)
}

fn namespace_settings<S: Serializer>(
    settings: &NamespaceSettings,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    NamespaceSettingsDocument::from(settings).serialize(serializer)
}
