//! Queues, namespaces, schedules as shown.

use ganger_proto::v1;
use ganger_types::reply::QueueView;
use ganger_types::{
    CatchUp, Clock, DueOrder, Keep, NamespaceRecord, Overlap, QueueCounts, QueueSettings,
    Retention, ScheduleRecord, ScheduleSpec,
};

use super::{labels, ms, retry, tags, text};

fn keep(keep: Keep) -> v1::Keep {
    v1::Keep {
        age_ms: keep.age.map(ms),
        count: keep.count,
    }
}

fn retention(retention: Retention) -> v1::Retention {
    v1::Retention {
        succeeded: Some(keep(retention.succeeded)),
        failed: Some(keep(retention.failed)),
        cancelled: Some(keep(retention.cancelled)),
    }
}

fn counts(counts: QueueCounts) -> v1::QueueCounts {
    v1::QueueCounts {
        blocked: counts.blocked,
        scheduled: counts.scheduled,
        ready: counts.ready,
        running: counts.running,
        succeeded: counts.succeeded,
        failed: counts.failed,
        cancelled: counts.cancelled,
    }
}

fn queue_settings(settings: &QueueSettings) -> v1::QueueSettings {
    let due_order = match settings.due_order {
        DueOrder::Behind => v1::DueOrder::Behind,
        DueOrder::Ahead => v1::DueOrder::Ahead,
    };
    v1::QueueSettings {
        paused: settings.paused,
        running_max: settings.running_max,
        live_max: settings.live_max,
        lease_ms: settings.lease_for.map(ms),
        grace_ms: settings.grace_for.map(ms),
        retry: settings.retry.as_ref().map(retry),
        retention: settings.retention.map(retention),
        due_order: i32::from(due_order),
    }
}

/// A queue as shown.
pub(crate) fn queue(view: &QueueView) -> v1::QueueView {
    v1::QueueView {
        queue: view.queue.to_text().into_owned(),
        settings: Some(queue_settings(&view.settings)),
        counts: Some(counts(view.counts)),
        schedules: view.schedules,
        oldest_ready_ms: view.oldest_ready_for.map(ms),
        created_at_us: view.created_at.0,
        enqueued_total: view.enqueued_total,
        finished_total: view.finished_total,
    }
}

/// A namespace as shown.
pub(crate) fn namespace(record: &NamespaceRecord) -> v1::NamespaceView {
    let settings = &record.settings;
    let clock = match settings.clock {
        Clock::Server => v1::Clock::Server,
        Clock::Caller => v1::Clock::Caller,
    };
    v1::NamespaceView {
        namespace: record.namespace.to_text().into_owned(),
        settings: Some(v1::NamespaceSettings {
            clock: i32::from(clock),
            lease_ms: Some(ms(settings.lease_for)),
            retry: Some(retry(&settings.retry)),
            retention: Some(retention(settings.retention)),
            history_max: Some(settings.history_max),
            payload_bytes_max: Some(settings.payload_bytes_max),
            lease_expirations_in_a_row_max: Some(settings.lease_expirations_in_a_row_max),
            live_max: settings.live_max,
            queues_max: Some(settings.queues_max),
        }),
    }
}

/// A schedule as stored.
pub(crate) fn schedule(record: &ScheduleRecord) -> v1::Schedule {
    use v1::schedule::Spec;
    let spec = match &record.spec {
        ScheduleSpec::Interval { every, first_at } => Spec::Interval(v1::Interval {
            every_ms: ms(*every),
            first_at_us: Some(first_at.0),
        }),
        ScheduleSpec::Cron {
            expression,
            time_zone,
        } => Spec::Cron(v1::Cron {
            expression: expression.clone(),
            time_zone: time_zone.clone(),
        }),
    };
    let overlap = match record.overlap {
        Overlap::Allow => v1::Overlap::Allow,
        Overlap::Skip => v1::Overlap::Skip,
        Overlap::Replace => v1::Overlap::Replace,
    };
    v1::Schedule {
        id: record.id.to_text().into_owned(),
        spec: Some(spec),
        catch_up: Some(catch_up(record.catch_up)),
        overlap: i32::from(overlap),
        paused: record.paused,
        queue: record.queue.to_text().into_owned(),
        kind: record.kind.to_text().into_owned(),
        payload: record.payload.clone(),
        priority: record.priority.to_whole(),
        retry: record.retry.as_ref().map(retry),
        timeout_ms: record.timeout.map(ms),
        tags: tags(&record.tags),
        labels: labels(&record.labels),
        created_at_us: record.created_at.0,
        next_at_us: record.next_at.filter(|_| !record.paused).map(|at| at.0),
        runs: record.runs,
        last_job: text!(record.last_job),
    }
}

fn catch_up(catch_up: CatchUp) -> v1::CatchUp {
    use v1::catch_up::Rule;
    let rule = match catch_up {
        CatchUp::None => Rule::None(v1::Done {}),
        CatchUp::Last => Rule::Last(v1::Done {}),
        CatchUp::All { max } => Rule::AllMax(max),
    };
    v1::CatchUp { rule: Some(rule) }
}
