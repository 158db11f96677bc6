//! Why a job is not running, as a document.

use ganger_types::why::{Explanation, Reason};
use ganger_types::{Queue, ShardId, Timestamp, Worker};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::full_name;
use crate::names::{Named, QueueName, WorkerName};
use crate::time::Moment;

/// Why a job is not running, or that it is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub struct WhyView {
    /// The job, as `shard/id`.
    job: String,
    /// State of the job.
    state: &'static str,
    /// The queue of the job.
    queue: QueueName,
    /// The causes, most important first.
    reasons: Vec<ReasonView>,
}

/// One reason for the state of a job.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Reason)]
struct ReasonView {
    /// `waits_for`, `waits_elsewhere`, `not_before`, `queue_paused`, `queue_limit`, behind, `no_worker`, released, runs,
    /// locked, throttled, `key_leased`, `key_taken`, `key_staged`, ended, next.
    reason: &'static str,
    /// A sentence for people.
    text: String,
    /// Of `waits_for`, `waits_elsewhere` and `behind`: how many jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// Of `behind`: there are more than counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<bool>,
    /// Of `waits_for` and `waits_elsewhere`: some of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    jobs: Vec<JobAndState>,
    /// Of `not_before`: when; of `locked`: until when; of `waits_elsewhere`: when the other shards were last asked whether
    /// they know of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Moment>,
    /// Of `not_before`: the attempt that failed; of `runs` and `locked`: the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// Of `queue_limit`: how many run.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<u64>,
    /// Of `queue_limit`: how many may.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    /// Of `no_worker`: nobody asked for so many seconds; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_seconds: Option<f64>,
    /// Of `released`: how often.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u32>,
    /// Of `runs`, `locked` and `key_leased`: with whom; of `released`: by whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerName>,
    /// Of `runs` and `key_leased`: the lease ends after so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_left_seconds: Option<f64>,
    /// Of `released` and `ended`: why; of `throttled`: by what.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// A job and where it stands.
#[derive(Debug, Serialize, ToSchema)]
struct JobAndState {
    /// The job, as `shard/id`.
    job: String,
    /// Its state; absent if only its own shard knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// The whole explanation, of a job of this shard.
pub fn view(shard: &ShardId, explanation: Explanation) -> WhyView {
    let reasons = explanation.reasons.into_iter();
    WhyView {
        job: full_name(shard, &explanation.job),
        state: explanation.state.as_str(),
        reasons: reasons
            .map(|one| reason(shard, &explanation.queue, one))
            .collect(),
        queue: Named(explanation.queue),
    }
}

/// When the job is expected to become ready, if that is what it waits for.
pub fn not_before(explanation: &Explanation) -> Option<Timestamp> {
    explanation.reasons.iter().find_map(|reason| match reason {
        Reason::NotBefore { at, .. } => Some(*at),
        _ => None,
    })
}

fn reason(shard: &ShardId, queue: &Queue, reason: Reason) -> ReasonView {
    let view = ReasonView {
        reason: reason.code(),
        text: reason.text(queue),
        ..ReasonView::default()
    };
    match reason {
        Reason::WaitsFor { count, some } => {
            let jobs = some.into_iter().map(|(job, state)| JobAndState {
                job: full_name(shard, &job),
                state: Some(state.as_str()),
            });
            ReasonView {
                count: Some(count),
                jobs: jobs.collect(),
                ..view
            }
        }
        Reason::WaitsElsewhere {
            count,
            some,
            asked_at,
        } => {
            let jobs = some.into_iter().map(|job| JobAndState {
                job: full_name(&job.shard, &job.id),
                state: None,
            });
            ReasonView {
                count: Some(count),
                jobs: jobs.collect(),
                at: asked_at.map(Moment),
                ..view
            }
        }
        Reason::NotBefore { at, after_attempt } => ReasonView {
            at: Some(Moment(at)),
            attempt: (after_attempt > 0).then_some(after_attempt),
            ..view
        },
        Reason::QueueLimit { running, limit } => ReasonView {
            running: Some(running),
            limit: Some(limit),
            ..view
        },
        Reason::Behind { jobs, more } => ReasonView {
            count: Some(jobs),
            more: Some(more),
            ..view
        },
        Reason::NoWorker { silent_for } => ReasonView {
            silent_seconds: silent_for.map(|span| span.as_secs_f64()),
            ..view
        },
        Reason::Released {
            times,
            worker,
            reason,
        } => ReasonView {
            times: Some(times),
            worker: Some(Named(worker)),
            detail: Some(reason),
            ..view
        },
        Reason::Runs {
            worker,
            attempt,
            lease_left,
        } => ReasonView {
            attempt: Some(attempt),
            lease_left_seconds: Some(lease_left.as_secs_f64()),
            worker: Some(Named(worker)),
            ..view
        },
        Reason::Locked {
            worker,
            attempt,
            until,
        } => ReasonView {
            at: Some(Moment(until)),
            attempt: Some(attempt),
            worker: Some(Named(worker)),
            ..view
        },
        Reason::Throttled { by } => ReasonView {
            detail: Some(by.join(", ")),
            ..view
        },
        Reason::KeyLeased { session, left, .. } => ReasonView {
            lease_left_seconds: left.map(|left| left.as_secs_f64()),
            worker: Worker::new(&session).ok().map(Named),
            ..view
        },
        Reason::Ended { detail } => ReasonView {
            detail: Some(detail),
            ..view
        },
        Reason::QueuePaused | Reason::KeyTaken { .. } | Reason::KeyStaged { .. } | Reason::Next => {
            view
        }
    }
}
