//! Messages of alerts: ordinary jobs of a queue of the server's own, so they survive restarts and are retried. The
//! newest of an alert also tells its state after a restart.

use std::time::Duration;

use ganger_document::time::{read_moment, show_moment};
use ganger_shard::{CallError, Handle};
use ganger_types::command::{Enqueue, NewJob};
use ganger_types::query::JobQuery;
use ganger_types::{
    Backoff, Bytes, Command, JobId, Kind, LabelKey, LabelValue, Namespace, Queue, Reply,
    RetryPolicy, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{Alert, Change, What};

/// Namespace of the messages.
pub const NAMESPACE: &str = "ganger";
/// Queue of the messages.
pub const QUEUE: &str = "alerts";
/// Kind of the messages.
pub const KIND: &str = "webhook";
/// Label with the name of the alert.
pub const ALERT_LABEL: &str = "alert";
/// Label with what a message reports: `firing`, `resolved` or `test`.
pub const STATE_LABEL: &str = "state";

/// Tries of a message: with the pauses between them about a day.
const RETRIES_MAX: u32 = 40;
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(3_600);
/// Time for which messages are kept, which is as long as a state survives a stop of the server.
const KEPT_FOR: Duration = Duration::from_secs(30 * 86_400);
/// Messages among which the newest that is no test is looked for.
const LOOKED_MAX: usize = 50;

/// The body of a message, as receivers get it.
#[derive(Debug, Deserialize, Serialize)]
struct Message {
    /// Name of the alert.
    alert: String,
    /// `firing`, `resolved` or `test`.
    state: String,
    /// Gravity of the alert: `error` or `warning`.
    gravity: String,
    /// What was found, for people.
    text: String,
    /// The condition in words.
    condition: String,
    /// Time since which the alert fires, or did.
    since: String,
    /// Time of the change.
    at: String,
    /// Name of the shard whose server sends the message.
    shard: String,
}

/// Stores a message of an alert, durably before it returns. The built-in worker sends it then.
///
/// # Errors
/// If the shard does not take it.
///
/// # Panics
/// If the name of the alert does not fit into a label, which the configuration refuses.
pub async fn enqueue(shard: &Handle, alert: &Alert, change: &Change) -> Result<JobId, CallError> {
    let message = Message {
        alert: alert.name.clone(),
        state: change.what.as_str().to_owned(),
        gravity: alert.gravity.as_str().to_owned(),
        text: change.text.clone(),
        condition: alert.words(),
        since: show_moment(change.since),
        at: show_moment(change.at),
        shard: shard.id().to_string(),
    };
    let body = serde_json::to_vec(&message).expect("a message is plain data");
    let label = |key, value: &str| {
        let value = LabelValue::new(value).expect("names of alerts are short");
        (LabelKey::from_static(key), value)
    };
    let job = NewJob {
        queue: Queue::from_static(QUEUE),
        kind: Kind::from_static(KIND),
        payload: Bytes::from(body),
        labels: vec![
            label(ALERT_LABEL, &alert.name),
            label(STATE_LABEL, change.what.as_str()),
        ],
        retry: Some(RetryPolicy {
            // Somebody waits for the outcome of a test.
            retries_max: if change.what == What::Test {
                0
            } else {
                RETRIES_MAX
            },
            backoff: Backoff::Exponential {
                base: PAUSE_FIRST,
                cap: PAUSE_MAX,
            },
            ..RetryPolicy::default()
        }),
        keep_succeeded: Some(Some(KEPT_FOR)),
        keep_failed: Some(Some(KEPT_FOR)),
        ..NewJob::default()
    };
    let command = Enqueue {
        namespace: Namespace::from_static(NAMESPACE),
        jobs: vec![job],
        idempotency_key: None,
        graph: false,
    };
    match shard.call(Command::Enqueue(Box::new(command))).await? {
        Reply::Enqueued { mut jobs, .. } if !jobs.is_empty() => Ok(jobs.swap_remove(0).id),
        _ => Err(CallError::Unavailable {
            shard: shard.id().clone(),
            reason: "its reply does not match the request".to_owned(),
        }),
    }
}

/// Returns the payload of the newest message of an alert that is no test; `None` if none is kept.
///
/// # Errors
/// If the shard does not answer.
pub async fn newest(shard: &Handle, alert: &str) -> Result<Option<Bytes>, CallError> {
    let Ok(value) = LabelValue::new(alert) else {
        return Ok(None);
    };
    let query = JobQuery {
        namespace: Namespace::from_static(NAMESPACE),
        queue: Some(Queue::from_static(QUEUE)),
        labels: vec![(LabelKey::from_static(ALERT_LABEL), value)],
        newest_first: true,
        limit: LOOKED_MAX,
        ..JobQuery::default()
    };
    let page = shard.list(query).await?;
    for job in page.jobs {
        let mut labels = job.record.labels.iter();
        let is_test = labels.any(|(key, value)| {
            key.as_bytes() == STATE_LABEL.as_bytes()
                && value.as_bytes() == What::Test.as_str().as_bytes()
        });
        if !is_test {
            return shard.payload(job.record.key).await;
        }
    }
    Ok(None)
}

/// Reads from a message since when its alert fires, and what was found; `None` if it does not fire.
pub fn read_state(payload: &[u8]) -> Option<(Timestamp, String)> {
    let message: Message = serde_json::from_slice(payload).ok()?;
    let is_firing = message.state == What::Firing.as_str();
    let since = read_moment(&message.since).ok()?;
    is_firing.then_some((since, message.text))
}

/// Reads from a message which alert it is of; `None` if it is no message.
pub fn alert_of(payload: &[u8]) -> Option<String> {
    let message: Message = serde_json::from_slice(payload).ok()?;
    Some(message.alert)
}
