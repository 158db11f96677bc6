//! Queues and namespaces as documents. Their settings have the form in which they are put.

use ganger_types::reply::QueueView as Shown;
use ganger_types::{NamespaceRecord, QueueCounts};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{Named, NamespaceName, QueueName};
use crate::settings::{NamespaceSettingsDocument, QueueSettingsDocument};
use crate::time::Moment;

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

fn counts(counts: &QueueCounts) -> CountsView {
    CountsView {
        blocked: counts.blocked,
        scheduled: counts.scheduled,
        ready: counts.ready,
        running: counts.running,
        succeeded: counts.succeeded,
        failed: counts.failed,
        cancelled: counts.cancelled,
    }
}

/// Queue, its settings and its counts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub struct QueueDoc {
    /// Name of the queue.
    queue: QueueName,
    /// Jobs by state; the finished are those still kept.
    counts: CountsView,
    /// Since so many seconds the oldest ready job waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ready_seconds: Option<f64>,
    /// Schedules that feed it.
    schedules: u64,
    /// When it was first used.
    created_at: Moment,
    /// Number of jobs ever enqueued in the queue.
    enqueued_total: u64,
    /// Jobs that ever ended.
    finished_total: u64,
    /// What an operator has set.
    settings: QueueSettingsDocument,
}

/// One page of the queues.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queues)]
pub struct QueuesDoc {
    /// Queues of this page, by name.
    pub queues: Vec<QueueDoc>,
    /// Give this as `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<QueueName>,
}

/// Converts a queue to its document.
pub fn queue(shown: Shown) -> QueueDoc {
    QueueDoc {
        queue: Named(shown.queue),
        counts: counts(&shown.counts),
        oldest_ready_seconds: shown.oldest_ready_for.map(|age| age.as_secs_f64()),
        schedules: shown.schedules,
        created_at: Moment(shown.created_at),
        enqueued_total: shown.enqueued_total,
        finished_total: shown.finished_total,
        settings: (&shown.settings).into(),
    }
}

/// Namespace and its settings.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Namespace)]
pub struct NamespaceDoc {
    /// Name of the namespace.
    namespace: NamespaceName,
    /// What an operator has set.
    settings: NamespaceSettingsDocument,
}

/// List of the namespaces.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Namespaces)]
pub struct NamespacesDoc {
    /// Namespaces in the order of their names.
    pub namespaces: Vec<NamespaceDoc>,
}

/// Converts a namespace to its document.
pub fn namespace(record: NamespaceRecord) -> NamespaceDoc {
    NamespaceDoc {
        settings: (&record.settings).into(),
        namespace: Named(record.namespace),
    }
}
