//! Tasks as lists show them: the object `runtime`, whose form is that of QuantumLeap.

use ganger_ngsi::task::{Origin, TASK_TYPE};
use ganger_types::history::AttemptEnd;
use ganger_types::{JobRecord, JobState, What};
use serde_json::json;

use crate::job::Status;

/// Error of an attempt whose worker died.
const ABANDONED: &str = "AbandonedJobError()";
/// Error of an attempt that took too long.
const TIMED_OUT: &str = "JobTimeoutException('the attempt took longer than it may')";

/// Returns the `runtime` object as JSON text. `origin` is the task's.
pub(crate) fn runtime(origin: &Origin, job: &JobRecord) -> String {
    let runtime = json!({
        "task_id": origin.task_id(&job.id.to_text()),
        "task_type": TASK_TYPE,
        "status": Status::of(job.state).as_str(),
        "retries_left": retries_left(job),
        "errors": errors(job),
    });
    runtime.to_string()
}

/// Returns the number of remaining retries; `None` if the task was created without any.
fn retries_left(job: &JobRecord) -> Option<u32> {
    let has_unfailed_attempt = matches!(job.state, JobState::Running | JobState::Succeeded);
    let failed = job
        .attempts_counted
        .saturating_sub(u32::from(has_unfailed_attempt));
    let retries_max = job.retry.retries_max;
    (retries_max > 0).then(|| retries_max.saturating_sub(failed))
}

/// Returns the errors of the failed attempts, oldest first.
fn errors(job: &JobRecord) -> Vec<String> {
    let errors = job.history.iter().filter_map(|entry| match &entry.what {
        What::Attempt { end, .. } => attempt_error(end),
        // The task failed without an attempt here, for example before it was imported.
        What::Failed { .. } => job.failure.as_ref().map(|it| it.message.clone()),
        _ => None,
    });
    errors.collect()
}

/// Returns the error of an attempt; `None` if it did not fail.
fn attempt_error(end: &AttemptEnd) -> Option<String> {
    match end {
        AttemptEnd::Failed { group, message, .. } if message.is_empty() => Some(group.to_string()),
        AttemptEnd::Failed { message, .. } => Some(message.clone()),
        AttemptEnd::Expired => Some(ABANDONED.to_owned()),
        AttemptEnd::TimedOut => Some(TIMED_OUT.to_owned()),
        AttemptEnd::Succeeded | AttemptEnd::Released { .. } | AttemptEnd::Cancelled => None,
    }
}
