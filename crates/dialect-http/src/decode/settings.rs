//! Settings of queues and namespaces, as documents.

use crate::decode::word::words;
use ganger_types::{Clock, DueOrder, Keep, NamespaceSettings, QueueSettings, Retention};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::decode::shape::RetryIn;
use crate::time::Span;

/// How long and how many finished jobs of one outcome are kept. What is absent is no bound.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"age\": \"1d\", \"count\": 1000}"
)]
#[schema(as = NewKeep)]
struct KeepIn {
    /// By age, counted from the end.
    age: Option<Span>,
    /// The newest so many per queue.
    count: Option<u64>,
}

/// What is kept of finished jobs. What is absent is as by default.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"succeeded\": {\"age\": \"1d\"}}"
)]
#[schema(as = NewRetention)]
struct RetentionIn {
    /// Of those that succeeded: 1 day and 100,000 a queue by default.
    succeeded: Option<KeepIn>,
    /// Of those that failed: 7 days by default.
    failed: Option<KeepIn>,
    /// Of those cancelled: 1 day and 100,000 a queue by default.
    cancelled: Option<KeepIn>,
}

impl From<KeepIn> for Keep {
    fn from(given: KeepIn) -> Self {
        Self {
            age: given.age.map(|span| span.0),
            count: given.count,
        }
    }
}

impl From<RetentionIn> for Retention {
    fn from(given: RetentionIn) -> Self {
        let default = Self::default();
        Self {
            succeeded: given.succeeded.map_or(default.succeeded, Into::into),
            failed: given.failed.map_or(default.failed, Into::into),
            cancelled: given.cancelled.map_or(default.cancelled, Into::into),
        }
    }
}

/// Where a job goes that falls due while others wait.
#[derive(Clone, Copy, Debug, Default, ToSchema)]
#[schema(rename_all = "snake_case")]
enum Order {
    /// Behind those already waiting.
    #[default]
    Behind,
    /// Before those already waiting, within its priority.
    Ahead,
}
words!(Order { "behind" => Behind, "ahead" => Ahead });

/// All settings of a queue. What is absent falls back to the namespace's.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"running_max\": 10}"
)]
#[schema(as = NewQueueSettings)]
pub(crate) struct QueueSettingsIn {
    /// Nothing is leased from it.
    #[serde(default)]
    paused: bool,
    /// Jobs of it that may run at once; absent is no limit.
    running_max: Option<u32>,
    /// Live jobs that it takes; absent is no limit.
    live_max: Option<u64>,
    /// Length of its leases.
    lease_for: Option<Span>,
    /// After a lease ran out: warn the holder and wait so long before it is taken away.
    grace_for: Option<Span>,
    /// For jobs that name none.
    retry: Option<RetryIn>,
    /// For jobs that name none.
    retention: Option<RetentionIn>,
    /// Where due jobs line up; `behind` if absent.
    #[serde(default)]
    due_order: Order,
}

impl From<QueueSettingsIn> for QueueSettings {
    fn from(given: QueueSettingsIn) -> Self {
        Self {
            paused: given.paused,
            running_max: given.running_max,
            live_max: given.live_max,
            lease_for: given.lease_for.map(|span| span.0),
            grace_for: given.grace_for.map(|span| span.0),
            retry: given.retry.map(Into::into),
            retention: given.retention.map(Into::into),
            due_order: match given.due_order {
                Order::Behind => DueOrder::Behind,
                Order::Ahead => DueOrder::Ahead,
            },
        }
    }
}

/// Whose time a namespace runs on.
#[derive(Clone, Copy, Debug, Default, ToSchema)]
#[schema(rename_all = "snake_case")]
enum ClockIn {
    /// Clock of the server.
    #[default]
    Server,
    /// Each command brings its own.
    Caller,
}
words!(ClockIn { "server" => Server, "caller" => Caller });

/// All settings of a namespace. What is absent is as by default.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"live_max\": 10000}"
)]
#[schema(as = NewNamespaceSettings)]
pub(crate) struct NamespaceSettingsIn {
    /// Whose time; `server` if absent.
    #[serde(default)]
    clock: ClockIn,
    /// Length of leases; 1 minute if absent.
    lease_for: Option<Span>,
    /// For jobs that name none.
    retry: Option<RetryIn>,
    /// For jobs that name none.
    retention: Option<RetentionIn>,
    /// History entries kept per job; 100 if absent.
    history_max: Option<u32>,
    /// Payload, input value, and result, in bytes; 1 MiB if absent.
    payload_bytes_max: Option<u64>,
    /// Leases that may run out in a row before a job is set aside as poison; 0 is never; 3 if absent.
    lease_expirations_in_a_row_max: Option<u32>,
    /// Live jobs of the whole namespace; absent is no limit.
    live_max: Option<u64>,
    /// Queues of the namespace; 10,000 if absent.
    queues_max: Option<u64>,
}

impl From<NamespaceSettingsIn> for NamespaceSettings {
    fn from(given: NamespaceSettingsIn) -> Self {
        let default = Self::default();
        Self {
            clock: match given.clock {
                ClockIn::Server => Clock::Server,
                ClockIn::Caller => Clock::Caller,
            },
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
