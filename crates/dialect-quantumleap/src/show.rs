//! A task as lists show it: the object `runtime`, and around it, where inputs are asked for, the payload as it is stored.

use ganger_ngsi::task::{Origin, TASK_TYPE};
use ganger_types::history::AttemptEnd;
use ganger_types::{JobRecord, JobState, What};
use serde_json::json;

use crate::job::Status;

/// What is told of an attempt whose worker died.
const ABANDONED: &str = "AbandonedJobError()";
/// What is told of an attempt that took too long.
const TIMED_OUT: &str = "JobTimeoutException('the attempt took longer than it may')";

/// The `runtime` object as JSON text. `origin` is the task's own.
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

/// `None` if it was made with no retries.
fn retries_left(job: &JobRecord) -> Option<u32> {
    let is_latest_good = matches!(job.state, JobState::Running | JobState::Succeeded);
    let failed = job
        .attempts_counted
        .saturating_sub(u32::from(is_latest_good));
    let retries_max = job.retry.retries_max;
    (retries_max > 0).then(|| retries_max.saturating_sub(failed))
}

/// One for each failed attempt, oldest first.
fn errors(job: &JobRecord) -> Vec<String> {
    let errors = job.history.iter().filter_map(|entry| match &entry.what {
        What::Attempt { end, .. } => of_attempt(end),
        // It failed without an attempt here, such as one that had failed where it was taken over from.
        What::Failed { .. } => job.failure.as_ref().map(|it| it.message.clone()),
        _ => None,
    });
    errors.collect()
}

/// The error of an attempt, if it failed.
fn of_attempt(end: &AttemptEnd) -> Option<String> {
    match end {
        AttemptEnd::Failed { group, message, .. } if message.is_empty() => Some(group.to_string()),
        AttemptEnd::Failed { message, .. } => Some(message.clone()),
        AttemptEnd::Expired => Some(ABANDONED.to_owned()),
        AttemptEnd::TimedOut => Some(TIMED_OUT.to_owned()),
        AttemptEnd::Succeeded | AttemptEnd::Released { .. } | AttemptEnd::Cancelled => None,
    }
}
