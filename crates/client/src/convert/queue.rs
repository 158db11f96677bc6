//! Queues and namespaces.

use std::time::Duration;

use ganger_proto::v1;

use super::{at, ms};
use crate::model::{
    Clock, DueOrder, Keep, NamespaceSettings, NamespaceView, QueueCounts, QueueSettings, QueueView,
    Retention,
};

impl From<Keep> for v1::Keep {
    fn from(keep: Keep) -> Self {
        Self {
            age_ms: keep.age.map(ms),
            count: keep.count,
        }
    }
}

impl From<v1::Keep> for Keep {
    fn from(keep: v1::Keep) -> Self {
        Self {
            age: keep.age_ms.map(Duration::from_millis),
            count: keep.count,
        }
    }
}

impl From<Retention> for v1::Retention {
    fn from(retention: Retention) -> Self {
        Self {
            succeeded: Some(retention.succeeded.into()),
            failed: Some(retention.failed.into()),
            cancelled: Some(retention.cancelled.into()),
        }
    }
}

impl From<v1::Retention> for Retention {
    fn from(retention: v1::Retention) -> Self {
        let default = Self::default();
        Self {
            succeeded: retention.succeeded.map_or(default.succeeded, Into::into),
            failed: retention.failed.map_or(default.failed, Into::into),
            cancelled: retention.cancelled.map_or(default.cancelled, Into::into),
        }
    }
}

impl From<QueueSettings> for v1::QueueSettings {
    fn from(settings: QueueSettings) -> Self {
        let due_order = match settings.due_order {
            DueOrder::Behind => v1::DueOrder::Behind,
            DueOrder::Ahead => v1::DueOrder::Ahead,
        };
        Self {
            paused: settings.paused,
            running_max: settings.running_max,
            live_max: settings.live_max,
            lease_ms: settings.lease_for.map(ms),
            grace_ms: settings.grace_for.map(ms),
            retry: settings.retry.map(Into::into),
            retention: settings.retention.map(Into::into),
            due_order: i32::from(due_order),
        }
    }
}

impl From<v1::QueueSettings> for QueueSettings {
    fn from(settings: v1::QueueSettings) -> Self {
        let due_order = match settings.due_order() {
            v1::DueOrder::Ahead => DueOrder::Ahead,
            v1::DueOrder::Behind | v1::DueOrder::Unspecified => DueOrder::Behind,
        };
        Self {
            paused: settings.paused,
            running_max: settings.running_max,
            live_max: settings.live_max,
            lease_for: settings.lease_ms.map(Duration::from_millis),
            grace_for: settings.grace_ms.map(Duration::from_millis),
            retry: settings.retry.map(Into::into),
            retention: settings.retention.map(Into::into),
            due_order,
        }
    }
}

impl From<v1::QueueCounts> for QueueCounts {
    fn from(counts: v1::QueueCounts) -> Self {
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

impl From<v1::QueueView> for QueueView {
    fn from(view: v1::QueueView) -> Self {
        Self {
            queue: view.queue,
            settings: view.settings.unwrap_or_default().into(),
            counts: view.counts.unwrap_or_default().into(),
            schedules: view.schedules,
            oldest_ready_for: view.oldest_ready_ms.map(Duration::from_millis),
            created_at: at(view.created_at_us),
            enqueued_total: view.enqueued_total,
            finished_total: view.finished_total,
        }
    }
}

impl From<NamespaceSettings> for v1::NamespaceSettings {
    fn from(settings: NamespaceSettings) -> Self {
        let clock = match settings.clock {
            Clock::Server => v1::Clock::Server,
            Clock::Caller => v1::Clock::Caller,
        };
        Self {
            clock: i32::from(clock),
            lease_ms: Some(ms(settings.lease_for)),
            retry: Some(settings.retry.into()),
            retention: Some(settings.retention.into()),
            history_max: Some(settings.history_max),
            payload_bytes_max: Some(settings.payload_bytes_max),
            lease_expirations_in_a_row_max: Some(settings.lease_expirations_in_a_row_max),
            live_max: settings.live_max,
            queues_max: Some(settings.queues_max),
        }
    }
}

impl From<v1::NamespaceSettings> for NamespaceSettings {
    fn from(settings: v1::NamespaceSettings) -> Self {
        let default = Self::default();
        let clock = match settings.clock() {
            v1::Clock::Caller => Clock::Caller,
            v1::Clock::Server | v1::Clock::Unspecified => Clock::Server,
        };
        Self {
            clock,
            lease_for: settings
                .lease_ms
                .map_or(default.lease_for, Duration::from_millis),
            retry: settings.retry.map_or(default.retry, Into::into),
            retention: settings.retention.map_or(default.retention, Into::into),
            history_max: settings.history_max.unwrap_or(default.history_max),
            payload_bytes_max: settings
                .payload_bytes_max
                .unwrap_or(default.payload_bytes_max),
            lease_expirations_in_a_row_max: settings
                .lease_expirations_in_a_row_max
                .unwrap_or(default.lease_expirations_in_a_row_max),
            live_max: settings.live_max,
            queues_max: settings.queues_max.unwrap_or(default.queues_max),
        }
    }
}

impl From<v1::NamespaceView> for NamespaceView {
    fn from(view: v1::NamespaceView) -> Self {
        Self {
            namespace: view.namespace,
            settings: view.settings.unwrap_or_default().into(),
        }
    }
}
