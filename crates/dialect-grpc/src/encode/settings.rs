//! Queues, namespaces, schedules as shown.

use ganger_proto::v1;
use ganger_types::reply::QueueView;
use ganger_types::{NamespaceRecord, ScheduleRecord, ScheduleSpec};

use super::{labels, ms, tags, text};

/// A queue as shown.
pub(crate) fn queue(view: &QueueView) -> v1::QueueView {
    v1::QueueView {
        queue: view.queue.to_text().into_owned(),
        settings: Some((&view.settings).into()),
        counts: Some(view.counts.into()),
        schedules: view.schedules,
        oldest_ready_ms: view.oldest_ready_for.map(ms),
        created_at_us: view.created_at.0,
        enqueued_total: view.enqueued_total,
        finished_total: view.finished_total,
    }
}

/// A namespace as shown.
pub(crate) fn namespace(record: &NamespaceRecord) -> v1::NamespaceView {
    v1::NamespaceView {
        namespace: record.namespace.to_text().into_owned(),
        settings: Some((&record.settings).into()),
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
    v1::Schedule {
        id: record.id.to_text().into_owned(),
        spec: Some(spec),
        catch_up: Some(record.catch_up.into()),
        overlap: i32::from(v1::Overlap::from(record.overlap)),
        paused: record.paused,
        queue: record.queue.to_text().into_owned(),
        kind: record.kind.to_text().into_owned(),
        payload: record.payload.clone(),
        priority: record.priority.to_whole(),
        retry: record.retry.as_ref().map(Into::into),
        timeout_ms: record.timeout.map(ms),
        tags: tags(&record.tags),
        labels: labels(&record.labels),
        created_at_us: record.created_at.0,
        next_at_us: record.next_at.filter(|_| !record.paused).map(|at| at.0),
        runs: record.runs,
        last_job: text!(record.last_job),
    }
}
