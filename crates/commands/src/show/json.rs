//! The documents that `--json` prints, the same as over HTTP, where the structs of the SDK are not documents
//! themselves.

use ganger_client::{Accepted, BulkResult, ChangeResult, Enqueued, InputView, ServerInfo};
use ganger_document::raw_json::{self, Base64, RawJson};
use ganger_document::view::change;
use ganger_document::view::input::Input;
use ganger_document::view::submission::{self, SubmittedGraph, SubmittedJob};
use ganger_types::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::time;

/// The result of a job, or the reason why there is none.
#[derive(Serialize)]
pub(crate) struct ResultLine {
    /// Id of the job as the user gave it, or its global id.
    pub(crate) id: String,
    /// State of the job.
    pub(crate) state: &'static str,
    /// Result of the job, if it has one.
    #[serde(flatten)]
    pub(crate) result: ResultValue,
    /// Last failure of the job; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<FailureLine>,
}

/// The group and message of a failure.
#[derive(Serialize)]
pub(crate) struct FailureLine {
    /// Group of the failure.
    pub(crate) group: String,
    /// Message of the failure, for people to read.
    pub(crate) message: String,
}

/// A result as JSON or in Base64; neither if there is none.
#[derive(Default, Serialize)]
pub(crate) struct ResultValue {
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<Base64>,
}

impl From<Option<&Bytes>> for ResultValue {
    fn from(bytes: Option<&Bytes>) -> Self {
        let (result, result_base64) = bytes.map(json_or_base64).unwrap_or_default();
        Self {
            result,
            result_base64,
        }
    }
}

/// Payload of a job.
#[derive(Serialize)]
pub(crate) struct PayloadLine<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<Base64>,
}

impl<'a> PayloadLine<'a> {
    /// Creates the document for the job with the id that the user gave.
    pub(crate) fn new(id: &'a str, bytes: &Bytes) -> Self {
        let (payload, payload_base64) = json_or_base64(bytes);
        Self {
            id,
            payload,
            payload_base64,
        }
    }
}

/// Returns bytes as a JSON value, exactly as written, if they are one; otherwise in Base64.
fn json_or_base64(bytes: &Bytes) -> (Option<RawJson>, Option<Base64>) {
    match raw_json::show(bytes) {
        (None, None) => (None, Some(Base64(bytes.clone()))),
        shown => shown,
    }
}

pub(crate) fn enqueued(job: &Enqueued) -> submission::Enqueued {
    submission::Enqueued {
        id: job.id.clone(),
        r#ref: job.to_string(),
        existed: job.existed,
    }
}

pub(crate) fn accepted(accepted: &Accepted, names: &[Option<String>]) -> SubmittedGraph {
    let jobs = accepted.jobs.iter().enumerate();
    let jobs = jobs.map(|(place, job)| SubmittedJob {
        name: names.get(place).cloned().flatten(),
        mock_id: None,
        task_id: None,
        enqueued: enqueued(job),
    });
    SubmittedGraph {
        graph: accepted.graph.clone(),
        repeat: accepted.repeat,
        jobs: jobs.collect(),
    }
}

pub(crate) fn matched(done: &BulkResult) -> change::Changed {
    change::Changed {
        changed: done.changed,
        skipped: done.skipped,
        skipped_jobs: done.skipped_jobs.clone(),
        dependents: Vec::new(),
        passed_on: done.passed_on.iter().cloned().collect(),
        next: None,
    }
}

pub(crate) fn would_change(done: &BulkResult) -> change::WouldChange {
    change::WouldChange {
        would_change: done.changed,
        would_skip: done.skipped,
        exact: done.exact,
        by_state: done.by_state.clone(),
        by_queue: done.by_queue.clone(),
        other_queues: (done.other_queues > 0).then_some(done.other_queues),
        sample: done.sample.clone(),
        as_of: done.as_of,
        next: None,
    }
}

pub(crate) fn changed(changed: &ChangeResult) -> change::Changed {
    change::Changed {
        changed: changed.count,
        skipped: u64::try_from(changed.skipped.len()).unwrap_or(u64::MAX),
        skipped_jobs: changed.skipped.clone(),
        dependents: changed.dependents.clone(),
        passed_on: changed.passed_on.iter().cloned().collect(),
        next: None,
    }
}

pub(crate) fn input(view: &InputView) -> Input {
    let input = Input {
        job: view.dependency.clone(),
        policy: view.dependency.is_some().then_some(view.policy),
        ..Input::new(view.position(), view.state.clone())
    };
    match &view.value {
        Some(value) => input.with_value(value),
        None => input,
    }
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
