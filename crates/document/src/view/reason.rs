//! Why a job is not running, as a document.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use ganger_types::external::ExternalReason;
use ganger_types::{JobState, Queue, ShardId, Timestamp, why};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{full_name, text};
use crate::one_of::{StateWord, word, word_if_any};
use crate::time::{Moment, calendar, moment_if_any, seconds_if_any};

/// Why a job is not running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Explanation {
    /// The job, as `shard/id`.
    pub job: String,
    /// State of the job.
    #[serde(serialize_with = "word")]
    #[schema(value_type = StateWord)]
    pub state: JobState,
    /// Queue of the job.
    pub queue: String,
    /// The causes, most important first.
    pub reasons: Vec<Reason>,
}

/// One reason for the state of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Reason {
    /// `waits_for`, `waits_elsewhere`, `not_before`, `queue_paused`, `queue_limit`, `behind`, `no_worker`, `released`,
    /// `runs`, `locked`, `throttled`, `key_leased`, `key_taken`, `key_staged`, `ended`, `store_held_up`, `next`.
    #[serde(rename = "reason")]
    #[schema(value_type = String)]
    pub code: Cow<'static, str>,
    /// A sentence for people.
    pub text: String,
    /// Of `waits_for`, `waits_elsewhere` and `behind`: number of jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Of `behind`: whether there are more jobs than counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<bool>,
    /// Of `waits_for` and `waits_elsewhere`: some of the jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobAndState>,
    /// Of `not_before`: the earliest start; of `locked`: the end of the lock; of `waits_elsewhere`: the time at which
    /// the other shards were last asked about the wait.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub at: Option<SystemTime>,
    /// Of `not_before`: the attempt that failed; of `runs` and `locked`: the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Of `queue_limit`: number of jobs of the queue that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Of `queue_limit`: number of jobs of the queue that may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Of `no_worker`: time since a worker last asked, in documents in seconds; absent: none ever did.
    #[serde(
        rename = "silent_seconds",
        serialize_with = "seconds_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub silent_for: Option<Duration>,
    /// Of `released`: number of releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// Of `runs`, `locked` and `key_leased`: the holder; of `released`: the worker that released the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Of `runs` and `key_leased`: time until the lease ends, in documents in seconds.
    #[serde(
        rename = "lease_left_seconds",
        serialize_with = "seconds_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub lease_left: Option<Duration>,
    /// Of `released` and `ended`: why; of `throttled`: by what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A job and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct JobAndState {
    /// The job, as `shard/id`.
    pub job: String,
    /// State of the job; absent if only its own shard knows.
    #[serde(
        serialize_with = "word_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<StateWord>)]
    pub state: Option<JobState>,
}

impl Explanation {
    /// The explanation of a job of a shard.
    pub fn new(shard: &ShardId, given: why::Explanation) -> Self {
        let reasons = given.reasons.into_iter();
        Self {
            job: full_name(shard, &given.job),
            state: given.state,
            reasons: reasons
                .map(|one| reason(shard, &given.queue, one))
                .collect(),
            queue: text(given.queue.as_bytes()),
        }
    }
}

/// The time at which the job is expected to become ready, if it waits for that.
pub fn not_before(explanation: &why::Explanation) -> Option<Timestamp> {
    explanation.reasons.iter().find_map(|reason| match reason {
        why::Reason::NotBefore { at, .. } => Some(*at),
        _ => None,
    })
}

fn reason(shard: &ShardId, queue: &Queue, reason: why::Reason) -> Reason {
    let view = Reason {
        code: reason.code().into(),
        text: reason.text(queue),
        ..Reason::default()
    };
    match reason {
        why::Reason::WaitsFor { count, some } => {
            let jobs = some.into_iter().map(|(job, state)| JobAndState {
                job: full_name(shard, &job),
                state: Some(state),
            });
            Reason {
                count: Some(count),
                jobs: jobs.collect(),
                ..view
            }
        }
        why::Reason::WaitsElsewhere {
            count,
            some,
            asked_at,
        } => {
            let jobs = some.into_iter().map(|job| JobAndState {
                job: full_name(&job.shard, &job.id),
                state: None,
            });
            Reason {
                count: Some(count),
                jobs: jobs.collect(),
                at: asked_at.map(calendar),
                ..view
            }
        }
        why::Reason::NotBefore { at, after_attempt } => Reason {
            at: Some(calendar(at)),
            attempt: (after_attempt > 0).then_some(after_attempt),
            ..view
        },
        why::Reason::QueueLimit { running, limit } => Reason {
            running: Some(running),
            limit: Some(limit),
            ..view
        },
        why::Reason::Behind { jobs, more } => Reason {
            count: Some(jobs),
            more: Some(more),
            ..view
        },
        why::Reason::NoWorker { silent_for } => Reason { silent_for, ..view },
        why::Reason::Released {
            times,
            worker,
            reason,
        } => Reason {
            times: Some(times),
            worker: Some(text(worker.as_bytes())),
            detail: Some(reason),
            ..view
        },
        why::Reason::Runs {
            worker,
            attempt,
            lease_left,
        } => Reason {
            attempt: Some(attempt),
            lease_left: Some(lease_left),
            worker: Some(text(worker.as_bytes())),
            ..view
        },
        why::Reason::External(reason) => external(reason, view),
        why::Reason::Ended { detail } | why::Reason::StoreHeldUp { detail } => Reason {
            detail: Some(detail),
            ..view
        },
        why::Reason::QueuePaused | why::Reason::Next => view,
    }
}

/// Adds the fields of a cause that only jobs of external systems have.
fn external(reason: ExternalReason, view: Reason) -> Reason {
    match reason {
        ExternalReason::Locked {
            worker,
            attempt,
            until,
        } => Reason {
            at: Some(calendar(until)),
            attempt: Some(attempt),
            worker: Some(text(worker.as_bytes())),
            ..view
        },
        ExternalReason::Throttled { by } => Reason {
            detail: Some(by.join(", ")),
            ..view
        },
        ExternalReason::KeyLeased { session, left, .. } => Reason {
            lease_left: left,
            worker: Some(session),
            ..view
        },
        ExternalReason::KeyTaken { .. } | ExternalReason::KeyStaged { .. } => view,
    }
}
