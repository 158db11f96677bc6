//! What `--json` prints: stable documents, field by field.
//!
//! Times are RFC 3339 in UTC, durations texts such as `1h30m`; absent means there is none.

use base64::Engine as _;
use ganger_client::{
    Accepted, Changed, Enqueued, Event, GraphView, Happening, InputView, Matched, Progress,
    QueueView, ServerInfo,
};
use ganger_document::settings::QueueSettingsDocument;
use ganger_document::view::job::ProgressDocument;
use serde_json::{Map, Value, json};

use super::time;

/// An object without the fields that are null.
fn object(fields: Value) -> Value {
    match fields {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, value)| !value.is_null())
                .collect(),
        ),
        other => other,
    }
}

/// Bytes as the JSON value that they are, or as base64 under the other key.
pub(crate) fn put_bytes(target: &mut Value, key: &str, bytes: &[u8]) {
    let Value::Object(map) = target else { return };
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => map.insert(key.to_owned(), value),
        Err(_) => {
            let text = base64::engine::general_purpose::STANDARD.encode(bytes);
            map.insert(format!("{key}_base64"), text.into())
        }
    };
}

pub(crate) fn enqueued(job: &Enqueued, called: Option<&str>) -> Value {
    object(json!({
        "name": called,
        "id": job.id,
        "ref": job.to_string(),
        "shard": job.shard,
        "existed": job.existed,
    }))
}

pub(crate) fn accepted(accepted: &Accepted, called: &[Option<String>]) -> Value {
    let name = |place: usize| called.get(place).and_then(Option::as_deref);
    let jobs = accepted
        .jobs
        .iter()
        .enumerate()
        .map(|(place, job)| enqueued(job, name(place)));
    object(json!({
        "jobs": jobs.collect::<Vec<_>>(),
        "graph": accepted.graph,
        "repeat": accepted.repeat,
    }))
}

fn progress(progress: &Progress) -> Value {
    json!(ProgressDocument::from(progress))
}

pub(crate) fn matched(done: &Matched, is_dry: bool) -> Value {
    if is_dry {
        return json!({
            "would_change": done.changed,
            "would_skip": done.skipped,
            "by_state": done.by_state,
            "by_queue": done.by_queue,
            "sample": done.sample,
        });
    }
    object(json!({
        "changed": done.changed,
        "skipped": done.skipped,
        "skipped_jobs": done.skipped_jobs,
        "passed_on": (!done.passed_on.is_empty()).then_some(&done.passed_on),
    }))
}

pub(crate) fn changed(changed: &Changed) -> Value {
    object(json!({
        "count": changed.count,
        "skipped": changed.skipped,
        "dependents": (!changed.dependents.is_empty()).then_some(&changed.dependents),
        "passed_on": (!changed.passed_on.is_empty()).then_some(&changed.passed_on),
    }))
}

pub(crate) fn graph(view: &GraphView) -> Value {
    let jobs = view.jobs.iter().map(|job| {
        object(json!({
            "id": job.id,
            "name": job.name,
            "kind": job.kind,
            "state": job.state.as_str(),
            "queue": job.queue,
            "progress": job.progress.as_ref().map(progress),
        }))
    });
    let edges = view
        .edges
        .iter()
        .map(|edge| object(json!({ "from": edge.from, "to": edge.to, "input": edge.input })));
    object(json!({
        "graph": view.graph,
        "jobs": jobs.collect::<Vec<_>>(),
        "edges": edges.collect::<Vec<_>>(),
        "more": view.more,
    }))
}

pub(crate) fn input(input: &InputView) -> Value {
    let mut out = object(json!({
        "slot": input.slot,
        "state": input.state,
        "dependency": input.dependency,
        "policy": input.dependency.is_some().then_some(input.policy.as_str()),
    }));
    if let Some(value) = &input.value {
        put_bytes(&mut out, "value", value);
    }
    out
}

pub(crate) fn queue(view: &QueueView) -> Value {
    let counts: Map<String, Value> = ganger_client::JobState::ALL
        .into_iter()
        .map(|state| (state.as_str().to_owned(), view.counts.of(state).into()))
        .collect();
    object(json!({
        "queue": view.queue,
        "counts": counts,
        "settings": QueueSettingsDocument::from(&view.settings),
        "schedules": view.schedules,
        "oldest_ready_seconds": view.oldest_ready_for.map(|age| age.as_secs_f64()),
        "created_at": time::exact(view.created_at),
        "enqueued_total": view.enqueued_total,
        "finished_total": view.finished_total,
    }))
}

pub(crate) fn info(info: &ServerInfo) -> Value {
    json!({
        "version": info.version,
        "shard": info.shard,
        "health": info.health,
        "reason": info.reason,
        "uptime": time::exact_span(info.uptime),
        "draining": info.draining,
        "live_jobs": info.live_jobs,
    })
}

pub(crate) fn event(event: &Event) -> Value {
    let mut out = json!({ "position": event.position, "at": time::exact(event.at) });
    let fields = match &event.happening {
        Happening::JobMoved(moved) => json!({
            "event": "job_moved",
            "job": moved.job,
            "number": moved.number,
            "queue": moved.queue,
            "kind": moved.kind,
            "from": moved.from.map(ganger_client::JobState::as_str),
            "to": moved.to.as_str(),
            "attempt": moved.attempt,
            "worker": moved.worker,
            "reason": (!moved.reason.is_empty()).then_some(&moved.reason),
        }),
        Happening::JobProgressed {
            job,
            number,
            progress: it,
        } => json!({
            "event": "job_progressed", "job": job, "number": number, "progress": progress(it),
        }),
        Happening::LogAppended {
            number,
            attempt,
            bytes,
        } => json!({
            "event": "log_appended", "number": number, "attempt": attempt, "bytes": bytes,
        }),
        Happening::JobRemoved { job, number, queue } => json!({
            "event": "job_removed", "job": job, "number": number, "queue": queue,
        }),
        Happening::QueueChanged { queue, paused } => json!({
            "event": "queue_changed", "queue": queue, "paused": paused,
        }),
        Happening::ScheduleChanged { schedule } => json!({
            "event": "schedule_changed", "schedule": schedule,
        }),
        Happening::WorkerSeen { worker } => json!({ "event": "worker_seen", "worker": worker }),
        Happening::WorkerGone { worker } => json!({ "event": "worker_gone", "worker": worker }),
    };
    if let (Value::Object(out), Value::Object(fields)) = (&mut out, object(fields)) {
        out.extend(fields);
    }
    out
}
