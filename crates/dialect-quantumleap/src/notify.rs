//! `POST /v2/notify`: queues a notification as a task, or inserts it within the request, as configured.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use ganger_access::Hold;
use ganger_ngsi::postgres::TaskInsert;
use ganger_ngsi::task::Task;
use ganger_ngsi::{notification, prepare};
use ganger_shard::CallError;
use ganger_types::command::Enqueue;
use ganger_types::{Command, Rejection};
use http::request::Parts;
use http::{StatusCode, header};
use serde_json::Value;

use crate::api::Api;
use crate::metrics::Outcome;
use crate::problem::{Problem, json_line};
use crate::{body, headers, job};

const ACCEPTED_TEXT: &str = "Notification successfully processed";
const NOT_ACCEPTED_TEXT: &str = "Notification not processed or not updated";
/// Prefix of the error for a wrong number of service paths, the only error of an insert that is the sender's fault.
const SERVICE_PATH_ERROR: &str = "InvalidHeaderValue(";
/// Size in bytes above which bodies are parsed on a separate thread, one at a time.
const LARGE_BYTES: usize = 64 << 10;

/// A task that is not stored yet.
struct Draft {
    uuid: String,
    task: Task,
    /// Payload for the queue; empty if it is not queued.
    payload: Vec<u8>,
}

/// Handles `POST /v2/notify`: stores a task for each accepted notification.
pub(crate) async fn notify(State(api): State<Api>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let draft = match read(&api, parts, body).await {
        Ok(draft) => draft,
        Err(problem) => {
            let outcome = if problem.status().is_client_error() {
                Outcome::Refused
            } else {
                Outcome::Failed
            };
            api.counters().notification(outcome);
            return problem.into_response();
        }
    };
    if api.environment().offload {
        enqueue(&api, draft).await
    } else {
        insert(&api, draft, false).await
    }
}

/// Checks a notification and prepares its entities.
async fn read(api: &Api, parts: Parts, body: axum::body::Body) -> Result<Draft, Problem> {
    let arrived_at = jiff::Timestamp::now();
    let body = body::read(api, body).await?;
    let hold = parts.extensions.get::<Arc<Hold>>().cloned();
    body::count_parsed(hold.as_deref(), &body)?;
    let is_queued = api.environment().offload;
    if body.len() <= LARGE_BYTES {
        return draft(&parts, &body, arrived_at, is_queued);
    }
    let permit = api.large_bodies().acquire().await;
    // The memory stays counted until the body is parsed, even if its sender has disconnected.
    let drafting = move || {
        let result = draft(&parts, &body, arrived_at, is_queued);
        drop(hold);
        result
    };
    let result = tokio::task::spawn_blocking(drafting).await;
    drop(permit);
    result.unwrap_or_else(|_| {
        let detail = "a defect of the server ended this request; nothing was done";
        Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
    })
}

fn draft(
    parts: &Parts,
    body: &Bytes,
    arrived_at: jiff::Timestamp,
    is_queued: bool,
) -> Result<Draft, Problem> {
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let entities = notification::parse(content_type.as_deref(), body)?;
    let time_index = headers::time_index(&parts.headers);
    let task = Task {
        origin: headers::origin(&parts.headers),
        payload: prepare::prepare(entities, time_index.as_deref(), arrived_at)?,
    };
    Ok(Draft {
        uuid: uuid()?,
        payload: if is_queued {
            task.to_json()
        } else {
            Vec::new()
        },
        task,
    })
}

/// Queues a task; responds once it is durable.
async fn enqueue(api: &Api, mut draft: Draft) -> Response {
    let payload = std::mem::take(&mut draft.payload);
    let job = job::of_task(&draft.task.origin, &draft.uuid, payload, api.environment());
    let command = Command::Enqueue(Box::new(Enqueue {
        namespace: api.settings().namespace.clone(),
        jobs: vec![job],
        ..Enqueue::default()
    }));
    let Err(error) = api.shard().call(command).await else {
        api.counters().notification(Outcome::Accepted);
        return json_line(StatusCode::OK, Value::from(ACCEPTED_TEXT));
    };
    if api.environment().recover {
        tracing::warn!(%error, "the queue did not accept a task, inserting it within the request");
        // The queue may have accepted the task if only the reply was lost.
        return insert(api, draft, true).await;
    }
    if let CallError::Rejected(Rejection::TooLarge { actual, limit, .. }) = &error {
        api.counters().notification(Outcome::Refused);
        let detail = format!(
            "the task of the notification has {actual} bytes, the limit is {limit}: send fewer entities at once, or raise `payload_bytes_max` of the namespace"
        );
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).into_response();
    }
    tracing::warn!(%error, "the queue did not accept a task");
    api.counters().notification(Outcome::Failed);
    error_response(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
}

/// Inserts a task within the request.
async fn insert(api: &Api, draft: Draft, is_repeat: bool) -> Response {
    let insert = TaskInsert {
        task: draft.task,
        uuid: draft.uuid,
        is_repeat,
        exclusive_until: None,
    };
    match api.inline_insert().insert(insert).await {
        Ok(inserted) => {
            api.counters().notification(Outcome::Inserted);
            api.counters().rows(inserted.rows);
            json_line(StatusCode::OK, Value::from(ACCEPTED_TEXT))
        }
        Err(error) if error.message.starts_with(SERVICE_PATH_ERROR) => {
            api.counters().notification(Outcome::Refused);
            error_response(StatusCode::BAD_REQUEST, &error.message)
        }
        Err(error) => {
            tracing::warn!(%error, "a notification could not be inserted");
            api.counters().notification(Outcome::Failed);
            error_response(StatusCode::INTERNAL_SERVER_ERROR, &error.message)
        }
    }
}

fn error_response(status: StatusCode, reason: &str) -> Response {
    json_line(
        status,
        Value::from(format!("{NOT_ACCEPTED_TEXT}: {reason}")),
    )
}

/// Returns a random UUID (version 4) without dashes.
fn uuid() -> Result<String, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let detail = format!("the system gives no random numbers: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    })?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(32);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("strings take everything");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_random_uuids() {
        let (one, other) = (uuid().expect("random"), uuid().expect("random"));
        assert_ne!(one, other);
        for text in [one, other] {
            assert!(text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert_eq!(text.as_bytes()[12], b'4');
            assert!(b"89ab".contains(&text.as_bytes()[16]));
        }
    }
}
