//! Events: to messages from the shard's events, and to the documents of HTTP and the SDK.

use ganger_document::view::event as document;
use ganger_types::{Event, Happening, ShardId};

use super::{
    At, FieldError, calendar, global_name, job_state, known_state, non_empty, state_number,
    text_or_empty,
};
use crate::v1;

/// The message of an event of a shard.
pub fn event_message(shard: &ShardId, event: Event) -> v1::Event {
    v1::Event {
        position: event.position.0,
        at_us: event.at.0,
        namespace: event.namespace.to_text().into_owned(),
        happening: Some(happening(shard, event.happening)),
    }
}

fn happening(shard: &ShardId, happening: Happening) -> v1::event::Happening {
    use v1::event::Happening as Wire;
    match happening {
        Happening::JobMoved {
            key,
            job,
            queue,
            kind,
            from,
            to,
            attempt,
            worker,
            reason,
        } => Wire::JobMoved(v1::JobMoved {
            job: global_name(shard, &job),
            number: key.0,
            queue: queue.to_text().into_owned(),
            kind: kind.to_text().into_owned(),
            from: from.map_or(0, state_number),
            to: state_number(to),
            attempt,
            worker: text_or_empty(worker.as_ref()),
            reason,
        }),
        Happening::JobProgressed { key, job, progress } => Wire::JobProgressed(v1::JobProgressed {
            job: global_name(shard, &job),
            number: key.0,
            progress: Some(progress.into()),
        }),
        Happening::LogAppended {
            key,
            attempt,
            bytes,
        } => Wire::LogAppended(v1::LogAppended {
            number: key.0,
            attempt,
            bytes,
        }),
        Happening::JobRemoved { key, job, queue } => Wire::JobRemoved(v1::JobRemoved {
            job: global_name(shard, &job),
            number: key.0,
            queue: queue.to_text().into_owned(),
        }),
        Happening::QueueChanged { queue, paused } => Wire::QueueChanged(v1::QueueChanged {
            queue: queue.to_text().into_owned(),
            paused,
        }),
        Happening::ScheduleChanged { schedule } => Wire::ScheduleChanged(v1::ScheduleChanged {
            schedule: schedule.to_text().into_owned(),
        }),
        Happening::WorkerSeen { worker } => Wire::WorkerSeen(v1::WorkerSeen {
            worker: worker.to_text().into_owned(),
        }),
        Happening::WorkerGone { worker } => Wire::WorkerGone(v1::WorkerGone {
            worker: worker.to_text().into_owned(),
        }),
    }
}

/// The document of an event.
///
/// # Errors
/// If the event has a kind or a value that this version does not know.
pub fn event(wire: v1::Event) -> Result<document::Event, FieldError> {
    let happening = wire.happening;
    let happening = happening.ok_or_else(|| {
        FieldError::missing(At::top("happening"), "an event that this version knows")
    })?;
    Ok(document::Event {
        position: wire.position,
        at: calendar(wire.at_us),
        namespace: wire.namespace,
        happening: happening_document(happening)?,
    })
}

fn happening_document(wire: v1::event::Happening) -> Result<document::Happening, FieldError> {
    use document::Happening as Document;
    use v1::event::Happening as Wire;
    Ok(match wire {
        Wire::JobMoved(moved) => Document::JobMoved(job_moved(moved)?),
        Wire::JobProgressed(one) => Document::JobProgressed {
            job: one.job,
            number: one.number,
            progress: one.progress.unwrap_or_default().into(),
        },
        Wire::LogAppended(one) => Document::LogAppended {
            number: one.number,
            attempt: one.attempt,
            bytes: one.bytes,
        },
        Wire::JobRemoved(one) => Document::JobRemoved {
            job: one.job,
            number: one.number,
            queue: one.queue,
        },
        Wire::QueueChanged(one) => Document::QueueChanged {
            queue: one.queue,
            paused: one.paused,
        },
        Wire::ScheduleChanged(one) => Document::ScheduleChanged {
            schedule: one.schedule,
        },
        Wire::WorkerSeen(one) => Document::WorkerSeen { worker: one.worker },
        Wire::WorkerGone(one) => Document::WorkerGone { worker: one.worker },
    })
}

fn job_moved(wire: v1::JobMoved) -> Result<document::JobMoved, FieldError> {
    Ok(document::JobMoved {
        job: wire.job,
        number: wire.number,
        queue: wire.queue,
        kind: wire.kind,
        from: job_state(At::top("job_moved.from"), wire.from)?,
        to: known_state(At::top("job_moved.to"), wire.to)?,
        attempt: wire.attempt,
        worker: non_empty(wire.worker),
        reason: wire.reason,
    })
}
