//! Settings and counts of queues and namespaces.

use std::time::Duration;

use ganger_types::{
    Clock, DueOrder, Keep, NamespaceSettings, QueueCounts, QueueSettings, Retention,
};

use super::{At, FieldError, ms, retry};
use crate::v1;

impl From<Keep> for v1::Keep {
    fn from(keep: Keep) -> Self {
        Self {
            age_ms: keep.age.map(ms),
            count: keep.count,
        }
    }
}

impl From<v1::Keep> for Keep {
    fn from(wire: v1::Keep) -> Self {
        Self {
            age: wire.age_ms.map(Duration::from_millis),
            count: wire.count,
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

/// The retention of finished jobs; absent fields have the default.
pub fn retention(wire: v1::Retention) -> Retention {
    let default = Retention::default();
    Retention {
        succeeded: wire.succeeded.map_or(default.succeeded, Into::into),
        failed: wire.failed.map_or(default.failed, Into::into),
        cancelled: wire.cancelled.map_or(default.cancelled, Into::into),
    }
}

impl From<&QueueSettings> for v1::QueueSettings {
    fn from(settings: &QueueSettings) -> Self {
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
            retry: settings.retry.as_ref().map(Into::into),
            retention: settings.retention.map(Into::into),
            due_order: i32::from(due_order),
            alert_age_ms: settings.alert_age.map(ms),
        }
    }
}

/// The settings of a queue.
///
/// # Errors
/// If a field is out of range.
pub fn queue_settings(at: At<'_>, wire: v1::QueueSettings) -> Result<QueueSettings, FieldError> {
    let due_order = match v1::DueOrder::try_from(wire.due_order) {
        Ok(v1::DueOrder::Unspecified | v1::DueOrder::Behind) => DueOrder::Behind,
        Ok(v1::DueOrder::Ahead) => DueOrder::Ahead,
        Err(_) => {
            let reason = format_args!("{} is not an order", wire.due_order);
            return Err(FieldError::invalid(at.field("due_order"), reason));
        }
    };
    Ok(QueueSettings {
        paused: wire.paused,
        running_max: wire.running_max,
        live_max: wire.live_max,
        lease_for: wire.lease_ms.map(Duration::from_millis),
        grace_for: wire.grace_ms.map(Duration::from_millis),
        retry: wire
            .retry
            .map(|policy| retry(at.field("retry"), &policy))
            .transpose()?,
        retention: wire.retention.map(retention),
        due_order,
        alert_age: wire.alert_age_ms.map(Duration::from_millis),
    })
}

impl From<QueueCounts> for v1::QueueCounts {
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

/// The number of jobs in each state.
pub fn queue_counts(wire: v1::QueueCounts) -> QueueCounts {
    QueueCounts {
        blocked: wire.blocked,
        scheduled: wire.scheduled,
        ready: wire.ready,
        running: wire.running,
        succeeded: wire.succeeded,
        failed: wire.failed,
        cancelled: wire.cancelled,
    }
}

impl From<&NamespaceSettings> for v1::NamespaceSettings {
    fn from(settings: &NamespaceSettings) -> Self {
        let clock = match settings.clock {
            Clock::Server => v1::Clock::Server,
            Clock::Caller => v1::Clock::Caller,
        };
        Self {
            clock: i32::from(clock),
            lease_ms: Some(ms(settings.lease_for)),
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

/// The settings of a namespace; absent fields have the default.
///
/// # Errors
/// If a field is out of range.
pub fn namespace_settings(
    at: At<'_>,
    wire: v1::NamespaceSettings,
) -> Result<NamespaceSettings, FieldError> {
    let default = NamespaceSettings::default();
    let clock = match v1::Clock::try_from(wire.clock) {
        Ok(v1::Clock::Unspecified | v1::Clock::Server) => Clock::Server,
        Ok(v1::Clock::Caller) => Clock::Caller,
        Err(_) => {
            let reason = format_args!("{} is not a clock", wire.clock);
            return Err(FieldError::invalid(at.field("clock"), reason));
        }
    };
    let policy = wire
        .retry
        .map(|policy| retry(at.field("retry"), &policy))
        .transpose()?;
    Ok(NamespaceSettings {
        clock,
        lease_for: wire
            .lease_ms
            .map_or(default.lease_for, Duration::from_millis),
        retry: policy.unwrap_or(default.retry),
        retention: wire.retention.map_or(default.retention, retention),
        history_max: wire.history_max.unwrap_or(default.history_max),
        payload_bytes_max: wire.payload_bytes_max.unwrap_or(default.payload_bytes_max),
        lease_expirations_in_a_row_max: wire
            .lease_expirations_in_a_row_max
            .unwrap_or(default.lease_expirations_in_a_row_max),
        live_max: wire.live_max,
        queues_max: wire.queues_max.unwrap_or(default.queues_max),
    })
}
