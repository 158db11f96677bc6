//! Settings of queues and namespaces, in requests and answers.

use ganger_types::{Keep, NamespaceSettings, QueueSettings, Retention};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::one_of::{ClockWord, DueOrderWord, OneOf};
use crate::retry::RetryDocument;
use crate::time::Span;

/// How long and how many finished jobs of one outcome are kept. An absent or null limit is no limit.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"age\": \"1d\", \"count\": 1000}"
)]
#[schema(as = Keep)]
struct KeepDocument {
    /// Maximum age, counted from the end of the job.
    age: Option<Span>,
    /// Maximum number of jobs per queue; the newest are kept.
    count: Option<u64>,
}

/// The retention of finished jobs, by outcome. Absent fields have the default.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"succeeded\": {\"age\": \"1d\"}}"
)]
#[schema(as = Retention)]
struct RetentionDocument {
    /// Jobs that succeeded: 1 day and 100,000 per queue by default.
    succeeded: Option<KeepDocument>,
    /// Jobs that failed: 7 days by default.
    failed: Option<KeepDocument>,
    /// Jobs that were cancelled: 1 day and 100,000 per queue by default.
    cancelled: Option<KeepDocument>,
}

impl From<KeepDocument> for Keep {
    fn from(given: KeepDocument) -> Self {
        Self {
            age: given.age.map(|span| span.0),
            count: given.count,
        }
    }
}

impl From<Keep> for KeepDocument {
    fn from(keep: Keep) -> Self {
        Self {
            age: keep.age.map(Span),
            count: keep.count,
        }
    }
}

impl From<RetentionDocument> for Retention {
    fn from(given: RetentionDocument) -> Self {
        let default = Self::default();
        Self {
            succeeded: given.succeeded.map_or(default.succeeded, Into::into),
            failed: given.failed.map_or(default.failed, Into::into),
            cancelled: given.cancelled.map_or(default.cancelled, Into::into),
        }
    }
}

impl From<Retention> for RetentionDocument {
    fn from(retention: Retention) -> Self {
        Self {
            succeeded: Some(retention.succeeded.into()),
            failed: Some(retention.failed.into()),
            cancelled: Some(retention.cancelled.into()),
        }
    }
}

/// All settings of a queue. Absent or null fields fall back to the namespace.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"running_max\": 10}"
)]
#[schema(as = QueueSettings)]
pub struct QueueSettingsDocument {
    /// Whether the queue is paused: nothing is leased from it.
    #[serde(default)]
    paused: bool,
    /// Maximum number of jobs that run at once; absent: no limit.
    running_max: Option<u32>,
    /// Maximum number of live jobs; absent: no limit.
    live_max: Option<u64>,
    /// Length of leases that a worker does not choose.
    lease_for: Option<Span>,
    /// Grace period: time that the worker still has after its lease expired; absent: none.
    grace_for: Option<Span>,
    /// Retry policy of jobs that set none.
    retry: Option<RetryDocument>,
    /// Retention of finished jobs that set none.
    retention: Option<RetentionDocument>,
    /// Position of jobs that become due: `behind` the ready jobs of their priority, or `ahead` of them; `behind` if
    /// absent.
    #[serde(default)]
    due_order: DueOrderWord,
    /// Time that a ready job may wait before the queue needs attention; 10 minutes if absent.
    alert_age: Option<Span>,
}

impl From<QueueSettingsDocument> for QueueSettings {
    fn from(given: QueueSettingsDocument) -> Self {
        Self {
            paused: given.paused,
            running_max: given.running_max,
            live_max: given.live_max,
            lease_for: given.lease_for.map(|span| span.0),
            grace_for: given.grace_for.map(|span| span.0),
            retry: given.retry.map(Into::into),
            retention: given.retention.map(Into::into),
            due_order: given.due_order.0,
            alert_age: given.alert_age.map(|span| span.0),
        }
    }
}

impl From<&QueueSettings> for QueueSettingsDocument {
    fn from(settings: &QueueSettings) -> Self {
        Self {
            paused: settings.paused,
            running_max: settings.running_max,
            live_max: settings.live_max,
            lease_for: settings.lease_for.map(Span),
            grace_for: settings.grace_for.map(Span),
            retry: settings.retry.as_ref().map(Into::into),
            retention: settings.retention.map(Into::into),
            due_order: OneOf(settings.due_order),
            alert_age: settings.alert_age.map(Span),
        }
    }
}

/// All settings of a namespace. Absent fields have the default.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"live_max\": 10000}"
)]
#[schema(as = NamespaceSettings)]
pub struct NamespaceSettingsDocument {
    /// Clock of the namespace: that of the server, or the time that each caller sends; `server` if absent.
    #[serde(default)]
    clock: ClockWord,
    /// Length of leases, for queues that set none; 1 minute if absent.
    lease_for: Option<Span>,
    /// Retry policy of jobs whose queue has none.
    retry: Option<RetryDocument>,
    /// Retention of finished jobs whose queue sets none.
    retention: Option<RetentionDocument>,
    /// Maximum number of history entries per job; 100 if absent.
    history_max: Option<u32>,
    /// Maximum size of a payload, an input value and a result, in bytes; 1 MiB if absent.
    payload_bytes_max: Option<u64>,
    /// Number of lease expirations in a row after which a job fails; 0: never; 3 if absent.
    lease_expirations_in_a_row_max: Option<u32>,
    /// Maximum number of live jobs in the namespace; absent: no limit.
    live_max: Option<u64>,
    /// Maximum number of queues; 10,000 if absent.
    queues_max: Option<u64>,
}

impl From<NamespaceSettingsDocument> for NamespaceSettings {
    fn from(given: NamespaceSettingsDocument) -> Self {
        let default = Self::default();
        Self {
            clock: given.clock.0,
            lease_for: given.lease_for.map_or(default.lease_for, |span| span.0),
            retry: given.retry.map_or(default.retry, Into::into),
            retention: given.retention.map_or(default.retention, Into::into),
            history_max: given.history_max.unwrap_or(default.history_max),
            payload_bytes_max: given.payload_bytes_max.unwrap_or(default.payload_bytes_max),
            lease_expirations_in_a_row_max: given
                .lease_expirations_in_a_row_max
                .unwrap_or(default.lease_expirations_in_a_row_max),
            live_max: given.live_max,
            queues_max: given.queues_max.unwrap_or(default.queues_max),
        }
    }
}

impl From<&NamespaceSettings> for NamespaceSettingsDocument {
    fn from(settings: &NamespaceSettings) -> Self {
        Self {
            clock: OneOf(settings.clock),
            lease_for: Some(Span(settings.lease_for)),
            retry: Some((&settings.retry).into()),
            retention: Some(settings.retention.into()),
            history_max: Some(settings.history_max),
            payload_bytes_max: Some(settings.payload_bytes_max),
            lease_expirations_in_a_row_max: Some(settings.lease_expirations_in_a_row_max),
            live_max: settings.live_max,
            queues_max: Some(settings.queues_max),
        }
    }
}
