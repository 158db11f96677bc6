//! Settings of queues and namespaces, schedules.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ganger_proto::v1;
use ganger_types::{
    CatchUp, Clock, DueOrder, Keep, Kind, Namespace, NamespaceSettings, Overlap, QueueSettings,
    Retention, ScheduleId, ScheduleRecord, ScheduleSpec, Timestamp, limits,
};

use super::{At, bounded, labels, ms, name, priority, queue, retry, tags};
use crate::problem::Problem;

fn keep(wire: Option<v1::Keep>, default: Keep) -> Keep {
    wire.map_or(default, |keep| Keep {
        age: keep.age_ms.map(ms),
        count: keep.count,
    })
}

fn retention(wire: v1::Retention) -> Retention {
    let default = Retention::default();
    Retention {
        succeeded: keep(wire.succeeded, default.succeeded),
        failed: keep(wire.failed, default.failed),
        cancelled: keep(wire.cancelled, default.cancelled),
    }
}

/// Everything that may be set on a queue.
pub(crate) fn queue_settings(wire: v1::QueueSettings) -> Result<QueueSettings, Problem> {
    let at = At::top("settings");
    let due_order = match v1::DueOrder::try_from(wire.due_order) {
        Ok(v1::DueOrder::Unspecified | v1::DueOrder::Behind) => DueOrder::Behind,
        Ok(v1::DueOrder::Ahead) => DueOrder::Ahead,
        Err(_) => {
            let reason = format_args!("{} is not an order", wire.due_order);
            return Err(Problem::invalid(at.field("due_order"), reason));
        }
    };
    Ok(QueueSettings {
        paused: wire.paused,
        running_max: wire.running_max,
        live_max: wire.live_max,
        lease_for: wire.lease_ms.map(ms),
        grace_for: wire.grace_ms.map(ms),
        retry: wire
            .retry
            .map(|policy| retry(at.field("retry"), &policy))
            .transpose()?,
        retention: wire.retention.map(retention),
        due_order,
    })
}

/// Everything that may be set on a namespace.
pub(crate) fn namespace_settings(
    wire: v1::NamespaceSettings,
) -> Result<NamespaceSettings, Problem> {
    let at = At::top("settings");
    let default = NamespaceSettings::default();
    let clock = match v1::Clock::try_from(wire.clock) {
        Ok(v1::Clock::Unspecified | v1::Clock::Server) => Clock::Server,
        Ok(v1::Clock::Caller) => Clock::Caller,
        Err(_) => {
            let reason = format_args!("{} is not a clock", wire.clock);
            return Err(Problem::invalid(at.field("clock"), reason));
        }
    };
    let policy = wire
        .retry
        .map(|policy| retry(at.field("retry"), &policy))
        .transpose()?;
    Ok(NamespaceSettings {
        clock,
        lease_for: wire.lease_ms.map_or(default.lease_for, ms),
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

/// A schedule to be put.
pub(crate) fn schedule(
    namespace: Namespace,
    wire: Option<v1::Schedule>,
) -> Result<ScheduleRecord, Problem> {
    let at = At::top("schedule");
    let wire = wire.ok_or_else(|| Problem::missing(at, "give the schedule"))?;
    let policy = wire
        .retry
        .as_ref()
        .map(|policy| retry(at.field("retry"), policy))
        .transpose()?;
    Ok(ScheduleRecord {
        namespace,
        id: name(at.field("id"), &wire.id, ScheduleId::new)?,
        spec: spec(at, wire.spec)?,
        catch_up: catch_up(at.field("catch_up"), wire.catch_up)?,
        overlap: overlap(at.field("overlap"), wire.overlap)?,
        paused: wire.paused,
        queue: queue(at.field("queue"), &wire.queue)?,
        kind: name(at.field("kind"), &wire.kind, Kind::new)?,
        payload: wire.payload,
        priority: priority(at.field("priority"), wire.priority)?,
        retry: policy,
        timeout: wire.timeout_ms.map(ms),
        tags: tags(at.field("tags"), &wire.tags)?,
        labels: labels(at.field("labels"), &wire.labels)?,
        created_at: Timestamp(0),
        next_at: None,
        runs: 0,
        last_job: None,
    })
}

fn spec(at: At<'_>, wire: Option<v1::schedule::Spec>) -> Result<ScheduleSpec, Problem> {
    use v1::schedule::Spec;
    match wire {
        Some(Spec::Interval(wire)) => {
            let every = ms(wire.every_ms);
            if every.is_zero() {
                let at = at.field("interval");
                return Err(Problem::invalid(
                    at.field("every_ms"),
                    "must be more than 0",
                ));
            }
            let first_at = wire
                .first_at_us
                .map_or_else(|| wall().after(every), Timestamp);
            Ok(ScheduleSpec::Interval { every, first_at })
        }
        Some(Spec::Cron(wire)) => Ok(ScheduleSpec::Cron {
            expression: wire.expression,
            time_zone: Some(wire.time_zone)
                .filter(|zone| !zone.is_empty())
                .unwrap_or_else(|| "UTC".into()),
        }),
        None => Err(Problem::missing(
            at,
            "give an interval or a cron expression",
        )),
    }
}

fn wall() -> Timestamp {
    let since: Duration = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(0).after(since)
}

fn catch_up(at: At<'_>, wire: Option<v1::CatchUp>) -> Result<CatchUp, Problem> {
    use v1::catch_up::Rule;
    Ok(match wire.and_then(|wire| wire.rule) {
        None | Some(Rule::Last(_)) => CatchUp::Last,
        Some(Rule::None(_)) => CatchUp::None,
        Some(Rule::AllMax(max)) => {
            let limit = limits::SCHEDULE_BACKLOG_MAX;
            let max = bounded(at.field("all_max"), max, limit, limit)?;
            CatchUp::All { max }
        }
    })
}

fn overlap(at: At<'_>, wire: i32) -> Result<Overlap, Problem> {
    match v1::Overlap::try_from(wire) {
        Ok(v1::Overlap::Unspecified | v1::Overlap::Allow) => Ok(Overlap::Allow),
        Ok(v1::Overlap::Skip) => Ok(Overlap::Skip),
        Ok(v1::Overlap::Replace) => Ok(Overlap::Replace),
        Err(_) => Err(Problem::invalid(
            at,
            format_args!("{wire} is not an overlap policy"),
        )),
    }
}
