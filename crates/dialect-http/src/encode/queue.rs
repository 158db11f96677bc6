//! Queues and namespaces as documents. Their settings have the form in which they are put.

use ganger_types::reply::QueueView as Shown;
use ganger_types::{
    Backoff, Clock, DueOrder, Keep, NamespaceRecord, QueueCounts, QueueSettings, Retention,
    RetryPolicy,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{Named, NamespaceName, QueueName};
use crate::time::{Moment, Span};

/// How often and when a job is tried again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetryPolicy)]
pub(crate) struct RetryView {
    /// Retries after the first attempt.
    max: u32,
    /// The pause before each.
    backoff: BackoffView,
    /// Hundredths by which each pause varies at random.
    jitter_percent: u8,
    /// Leases that may run out without counting against the retries; the next one fails the job. Null: each counts.
    lease_expirations_max: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = BackoffPolicy)]
enum BackoffView {
    /// The same pause before every retry.
    Fixed(Span),
    /// One after the other; the last repeats.
    List(Vec<Span>),
    /// A pause that doubles with every retry, up to a cap.
    Exponential {
        /// Before the first retry.
        base: Span,
        /// Upper bound of the pause.
        cap: Span,
    },
}

impl From<&RetryPolicy> for RetryView {
    fn from(policy: &RetryPolicy) -> Self {
        let backoff = match &policy.backoff {
            Backoff::Fixed(span) => BackoffView::Fixed(Span(*span)),
            Backoff::List(list) => BackoffView::List(list.iter().copied().map(Span).collect()),
            Backoff::Exponential { base, cap } => BackoffView::Exponential {
                base: Span(*base),
                cap: Span(*cap),
            },
        };
        Self {
            max: policy.retries_max,
            backoff,
            jitter_percent: policy.jitter_percent,
            lease_expirations_max: policy.lease_expirations_max,
        }
    }
}

/// How long and how many finished jobs are kept; null is no bound.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Keep)]
struct KeepView {
    /// Maximum age, counted from the end of the job; null is no bound.
    age: Option<Span>,
    /// Maximum number of jobs per queue, the newest; null is no bound.
    count: Option<u64>,
}

/// What is kept of finished jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Retention)]
struct RetentionView {
    /// Of those that succeeded.
    succeeded: KeepView,
    /// Of those that failed.
    failed: KeepView,
    /// Limits for jobs that were cancelled.
    cancelled: KeepView,
}

fn retention(retention: &Retention) -> RetentionView {
    let keep = |keep: Keep| KeepView {
        age: keep.age.map(Span),
        count: keep.count,
    };
    RetentionView {
        succeeded: keep(retention.succeeded),
        failed: keep(retention.failed),
        cancelled: keep(retention.cancelled),
    }
}

/// The settings of a queue; null falls back to the namespace.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueSettings)]
struct SettingsView {
    /// Nothing is leased from it.
    paused: bool,
    /// Jobs of it that may run at once.
    running_max: Option<u32>,
    /// Live jobs that it takes.
    live_max: Option<u64>,
    /// Length of its leases.
    lease_for: Option<Span>,
    /// Pause between a lease's end and its loss.
    grace_for: Option<Span>,
    /// For jobs that name none.
    retry: Option<RetryView>,
    /// For jobs that name none.
    retention: Option<RetentionView>,
    /// Place of a job that falls due: `behind` those already waiting, or `ahead` of them within its priority.
    due_order: &'static str,
}

fn settings(settings: &QueueSettings) -> SettingsView {
    SettingsView {
        paused: settings.paused,
        running_max: settings.running_max,
        live_max: settings.live_max,
        lease_for: settings.lease_for.map(Span),
        grace_for: settings.grace_for.map(Span),
        retry: settings.retry.as_ref().map(RetryView::from),
        retention: settings.retention.as_ref().map(retention),
        due_order: match settings.due_order {
            DueOrder::Behind => "behind",
            DueOrder::Ahead => "ahead",
        },
    }
}

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
pub(crate) struct QueueDoc {
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
    settings: SettingsView,
}

/// One page of the queues.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queues)]
pub(crate) struct QueuesDoc {
    /// Queues of this page, by name.
    pub(crate) queues: Vec<QueueDoc>,
    /// Give this as `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<QueueName>,
}

/// Converts a queue to its document.
pub(crate) fn queue(shown: Shown) -> QueueDoc {
    QueueDoc {
        queue: Named(shown.queue),
        counts: counts(&shown.counts),
        oldest_ready_seconds: shown.oldest_ready_for.map(|age| age.as_secs_f64()),
        schedules: shown.schedules,
        created_at: Moment(shown.created_at),
        enqueued_total: shown.enqueued_total,
        finished_total: shown.finished_total,
        settings: settings(&shown.settings),
    }
}

/// The settings of a namespace.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NamespaceSettings)]
struct NamespaceSettingsView {
    /// Clock that times the namespace: `server` or `caller`.
    clock: &'static str,
    /// Default length of a lease, for queues that set none.
    lease_for: Span,
    /// For jobs that name none.
    retry: RetryView,
    /// For jobs that name none.
    retention: RetentionView,
    /// History entries kept per job.
    history_max: u32,
    /// Payload, input value, and result, in bytes.
    payload_bytes_max: u64,
    /// Leases that may run out in a row.
    lease_expirations_in_a_row_max: u32,
    /// Live jobs of the namespace.
    live_max: Option<u64>,
    /// Queues of the namespace.
    queues_max: u64,
}

/// Namespace and its settings.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Namespace)]
pub(crate) struct NamespaceDoc {
    /// Name of the namespace.
    namespace: NamespaceName,
    /// What an operator has set.
    settings: NamespaceSettingsView,
}

/// List of the namespaces.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Namespaces)]
pub(crate) struct NamespacesDoc {
    /// Namespaces in the order of their names.
    pub(crate) namespaces: Vec<NamespaceDoc>,
}

/// Converts a namespace to its document.
pub(crate) fn namespace(record: NamespaceRecord) -> NamespaceDoc {
    let settings = record.settings;
    NamespaceDoc {
        namespace: Named(record.namespace),
        settings: NamespaceSettingsView {
            clock: match settings.clock {
                Clock::Server => "server",
                Clock::Caller => "caller",
            },
            lease_for: Span(settings.lease_for),
            retry: RetryView::from(&settings.retry),
            retention: retention(&settings.retention),
            history_max: settings.history_max,
            payload_bytes_max: settings.payload_bytes_max,
            lease_expirations_in_a_row_max: settings.lease_expirations_in_a_row_max,
            live_max: settings.live_max,
            queues_max: settings.queues_max,
        },
    }
}
