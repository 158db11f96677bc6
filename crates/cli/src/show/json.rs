//! What `--json` prints: stable documents, field by field.
//!
//! Times are RFC 3339 in UTC, durations texts such as `1h30m`; absent means there is none.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use ganger_client::{
    Accepted, CatchUp, Changed, Enqueued, Event, GraphView, Happening, InputView, Matched, Page,
    Progress, QueueView, RetryPolicy, Sample, Schedule, ScheduleSpec, ServerInfo, Statistics,
    WorkerView,
};
use ganger_document::retry::RetryDocument;
use ganger_document::settings::QueueSettingsDocument;
use ganger_document::view::job::ProgressDocument;
use serde::Serialize;
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

fn at(time: Option<SystemTime>) -> Value {
    time.map_or(Value::Null, |time| time::exact(time).into())
}

fn span(span: Option<Duration>) -> Value {
    span.map_or(Value::Null, |span| time::exact_span(span).into())
}

fn labels(pairs: &[(String, String)]) -> Value {
    let map: Map<String, Value> = pairs
        .iter()
        .map(|(key, value)| (key.clone(), value.clone().into()))
        .collect();
    Value::Object(map)
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

/// A document of the HTTP API.
pub(crate) fn document(document: &impl Serialize) -> Value {
    serde_json::to_value(document).expect("a document is plain data")
}

fn progress(progress: &Progress) -> Value {
    document(&ProgressDocument::from(progress))
}

fn retry(policy: &RetryPolicy) -> Value {
    document(&RetryDocument::from(policy))
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
        "settings": document(&QueueSettingsDocument::from(&view.settings)),
        "schedules": view.schedules,
        "oldest_ready_seconds": view.oldest_ready_for.map(|age| age.as_secs_f64()),
        "created_at": time::exact(view.created_at),
        "enqueued_total": view.enqueued_total,
        "finished_total": view.finished_total,
    }))
}

pub(crate) fn schedule(schedule: &Schedule) -> Value {
    let rule = &schedule.rule;
    let mut out = json!({ "id": rule.id });
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            out[key] = value;
        }
    };
    match &rule.spec {
        ScheduleSpec::Interval { every, first_at } => {
            put("every", time::exact_span(*every).into());
            put("first_at", at(*first_at));
        }
        ScheduleSpec::Cron {
            expression,
            time_zone,
        } => {
            put("cron", expression.clone().into());
            put("time_zone", time_zone.clone().into());
        }
    }
    put("catch_up", rule.catch_up.as_str().into());
    if let CatchUp::All { max } = rule.catch_up {
        put("catch_up_max", max.into());
    }
    put("overlap", rule.overlap.as_str().into());
    put("paused", rule.paused.into());
    put("queue", rule.queue.clone().into());
    put("kind", rule.kind.clone().into());
    put("priority", rule.priority.into());
    put("retry", rule.retry.as_ref().map_or(Value::Null, retry));
    put("timeout", span(rule.timeout));
    put("tags", rule.tags.clone().into());
    put("labels", labels(&rule.labels));
    put("created_at", time::exact(schedule.created_at).into());
    put("next_at", at(schedule.next_at));
    put("runs", schedule.runs.into());
    put("last_job", schedule.last_job.clone().into());
    if !rule.payload.is_empty() {
        put_bytes(&mut out, "payload", &rule.payload);
    }
    out
}

pub(crate) fn worker(worker: &WorkerView) -> Value {
    let holds = worker.holds.iter().map(|held| {
        json!({
            "job": held.job,
            "queue": held.queue,
            "kind": held.kind,
            "leased_at": time::exact(held.leased_at),
        })
    });
    json!({
        "worker": worker.worker,
        "seen_at": time::exact(worker.seen_at),
        "holds": holds.collect::<Vec<_>>(),
    })
}

pub(crate) fn statistics(queue: &str, statistics: &Statistics) -> Value {
    let sample = |sample: &Sample| {
        json!({
            "count": sample.count,
            "mean_seconds": sample.mean_seconds,
            "deviation_seconds": sample.deviation_seconds,
            "histogram": sample.histogram,
        })
    };
    json!({
        "queue": queue,
        "day": statistics.day,
        "failed": statistics.failed,
        "failures": statistics.failures,
        "retries": statistics.retries,
        "waiting": sample(&statistics.waiting),
        "running": sample(&statistics.running),
    })
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

pub(crate) fn page(page: &Page) -> impl Iterator<Item = Value> + '_ {
    page.jobs.iter().map(document)
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
