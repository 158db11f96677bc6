//! Maps tasks to jobs: labels, retries, retention, and the status that follows from the job's state.

use ganger_ngsi::environment::Environment;
use ganger_ngsi::job::{BACKOFF_MAX, KIND, LEASE_EXPIRATIONS_MAX, QUEUE};
use ganger_ngsi::labels;
use ganger_ngsi::task::Origin;
use ganger_types::command::NewJob;
use ganger_types::limits::RETRIES_MAX;
use ganger_types::{
    Backoff, Bytes, JobId, JobRecord, JobState, JobStates, Kind, LabelKey, LabelValue, Queue,
    RetryPolicy, Timestamp,
};

/// Returns the job of a task. `payload` is the task document.
pub(crate) fn of_task(
    origin: &Origin,
    uuid: &str,
    payload: Vec<u8>,
    environment: &Environment,
) -> NewJob {
    NewJob {
        id: Some(JobId::new(uuid).expect("a UUID is short")),
        queue: Queue::from_static(QUEUE),
        kind: Kind::from_static(KIND),
        payload: Bytes::from(payload),
        labels: labels::of(origin).into_iter().map(label).collect(),
        retry: Some(RetryPolicy {
            retries_max: environment.retries_max.min(RETRIES_MAX),
            backoff: Backoff::Exponential {
                base: environment.retry_base,
                cap: BACKOFF_MAX,
            },
            lease_expirations_max: Some(LEASE_EXPIRATIONS_MAX),
            ..RetryPolicy::default()
        }),
        keep_succeeded: Some(environment.keep_succeeded),
        keep_failed: Some(environment.keep_failed),
        ..NewJob::default()
    }
}

/// Returns the label of all tasks of this tenant and path.
pub(crate) fn scope_label(origin: &Origin) -> (LabelKey, LabelValue) {
    label(labels::scope(origin))
}

/// Returns the label of all tasks with this correlation id.
pub(crate) fn correlator_label(correlator: &str) -> (LabelKey, LabelValue) {
    label(labels::correlator(correlator))
}

fn label((key, value): labels::Label) -> (LabelKey, LabelValue) {
    let value = LabelValue::new(value).expect("it is short, or else a hash");
    (LabelKey::from_static(key), value)
}

/// Returns the correlation id of a task from the labels of its job; `Err` if only the payload has it.
pub(crate) fn correlator_of(job: &JobRecord) -> Result<Option<String>, ()> {
    let label = |wanted: &str| {
        let mut labels = job.labels.iter();
        labels.find(|(key, _)| key.as_bytes() == wanted.as_bytes())
    };
    match label(labels::CORRELATOR) {
        Some((_, value)) => Ok(Some(value.to_text().into_owned())),
        None if label(labels::CORRELATOR_HASH).is_some() => Err(()),
        None => Ok(None),
    }
}

/// Whether the time to live of a task is over. Such a task counts as removed.
pub(crate) fn is_expired(job: &JobRecord, now: Timestamp) -> bool {
    let until = job
        .finished
        .as_ref()
        .and_then(|finished| finished.keep_until);
    until.flatten().is_some_and(|until| until <= now)
}

/// The status of a task in QuantumLeap's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Pending,
    Succeeded,
    Failed,
}

impl Status {
    pub(crate) const ALL: [Self; 3] = [Self::Pending, Self::Succeeded, Self::Failed];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    /// Returns the status of a state. A task cancelled through another API will not be inserted, so it has failed.
    pub(crate) fn of(state: JobState) -> Self {
        match state {
            JobState::Blocked | JobState::Scheduled | JobState::Ready | JobState::Running => {
                Self::Pending
            }
            JobState::Succeeded => Self::Succeeded,
            JobState::Failed | JobState::Cancelled => Self::Failed,
        }
    }

    /// Returns the states with this status.
    pub(crate) fn states(self) -> JobStates {
        let all = JobState::ALL.into_iter();
        all.filter(|state| Self::of(*state) == self).collect()
    }
}
