//! Why a job is not running, as a document.

use ganger_types::reply::{Explanation, Reason};
use ganger_types::{ShardId, Timestamp, Worker};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::full_name;
use crate::names::{Named, WorkerName};
use crate::time::Moment;

/// Why a job is not running, or that it is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(crate) struct WhyView {
    /// The job, as `shard/id`.
    job: String,
    /// Where it stands.
    state: &'static str,
    /// The causes, most important first.
    reasons: Vec<ReasonView>,
}

/// One cause.
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
pub(crate) fn view(shard: &ShardId, explanation: Explanation) -> WhyView {
    let reasons = explanation.reasons.into_iter();
    WhyView {
        job: full_name(shard, &explanation.job),
        state: explanation.state.as_str(),
        reasons: reasons.map(|one| reason(shard, one)).collect(),
    }
}

/// When the job is expected to become ready, if that is what it waits for.
pub(crate) fn not_before(explanation: &Explanation) -> Option<Timestamp> {
    explanation.reasons.iter().find_map(|reason| match reason {
        Reason::NotBefore { at, .. } => Some(*at),
        _ => None,
    })
}

fn reason(shard: &ShardId, reason: Reason) -> ReasonView {
    let plain = |reason, text: String| ReasonView {
        reason,
        text,
        ..ReasonView::default()
    };
    match reason {
        Reason::WaitsFor { count, some } => ReasonView {
            count: Some(count),
            jobs: some
                .into_iter()
                .map(|(job, state)| JobAndState {
                    job: full_name(shard, &job),
                    state: Some(state.as_str()),
                })
                .collect(),
            ..plain(
                "waits_for",
                match count {
                    1 => "it waits for another job".to_owned(),
                    more => format!("it waits for {more} other jobs"),
                },
            )
        },
        Reason::WaitsElsewhere {
            count,
            some,
            asked_at,
        } => {
            let text = match count {
                1 => "it waits for a job of another shard".to_owned(),
                more => format!("it waits for {more} jobs of other shards"),
            };
            let jobs = some.into_iter().map(|job| JobAndState {
                job: full_name(&job.shard, &job.id),
                state: None,
            });
            ReasonView {
                count: Some(count),
                jobs: jobs.collect(),
                at: asked_at.map(Moment),
                ..plain("waits_elsewhere", text)
            }
        }
        Reason::NotBefore { at, after_attempt } => ReasonView {
            at: Some(Moment(at)),
            attempt: (after_attempt > 0).then_some(after_attempt),
            ..plain("not_before", "its time has not come".to_owned())
        },
        Reason::QueuePaused => plain("queue_paused", "its queue is paused".to_owned()),
        Reason::QueueLimit { running, limit } => ReasonView {
            running: Some(running),
            limit: Some(limit),
            ..plain(
                "queue_limit",
                format!("{running} jobs of its queue run, {limit} may"),
            )
        },
        Reason::Behind { jobs, more } => {
            let least = if more { "at least " } else { "" };
            ReasonView {
                count: Some(jobs),
                more: Some(more),
                ..plain("behind", format!("{least}{jobs} jobs go first"))
            }
        }
        Reason::NoWorker { silent_for } => ReasonView {
            silent_seconds: silent_for.map(|span| span.as_secs_f64()),
            ..plain("no_worker", "no worker asks its queue".to_owned())
        },
        Reason::Released {
            times,
            worker,
            reason,
        } => released(times, worker, reason),
        Reason::Runs {
            worker,
            attempt,
            lease_left,
        } => ReasonView {
            attempt: Some(attempt),
            lease_left_seconds: Some(lease_left.as_secs_f64()),
            text: format!("it runs with {worker}"),
            worker: Some(Named(worker)),
            ..plain("runs", String::new())
        },
        Reason::Locked { .. } | Reason::Throttled { .. } => of_qless(reason),
        Reason::KeyLeased { .. } | Reason::KeyTaken { .. } | Reason::KeyStaged { .. } => {
            of_keys(reason)
        }
        Reason::Ended { detail } => ReasonView {
            detail: Some(detail),
            ..plain("ended", "it has ended".to_owned())
        },
        Reason::Next => plain("next", "the next worker that asks gets it".to_owned()),
    }
}

fn released(times: u32, worker: Worker, reason: String) -> ReasonView {
    ReasonView {
        reason: "released",
        text: format!("it was given back {times} times"),
        times: Some(times),
        worker: Some(Named(worker)),
        detail: Some(reason),
        ..ReasonView::default()
    }
}

/// Where only items of raw keys stand.
fn of_keys(reason: Reason) -> ReasonView {
    let plain = |reason, text| ReasonView {
        reason,
        text,
        ..ReasonView::default()
    };
    match reason {
        Reason::KeyLeased {
            session,
            left,
            goes_back,
        } => ReasonView {
            lease_left_seconds: left.map(|left| left.as_secs_f64()),
            worker: Worker::new(&session).ok().map(Named),
            ..plain(
                "key_leased",
                match (left.is_some(), goes_back) {
                    (false, _) => format!("{session} works on it under a lease without an end"),
                    (true, true) => format!(
                        "{session} works on it; when the lease has run out it goes back to its queue by itself"
                    ),
                    (true, false) => format!(
                        "{session} works on it; when the lease has run out a cleaner must put it back"
                    ),
                },
            )
        },
        Reason::KeyTaken { back_after } => plain(
            "key_taken",
            match back_after {
                Some(after) => format!(
                    "it was taken from its queue and nobody holds a lease: it goes back by itself, {} s after it was taken at the latest",
                    after.as_secs_f64()
                ),
                None => "it was taken from its queue and nobody holds a lease: a cleaner must put it back".to_owned(),
            },
        ),
        Reason::KeyStaged { queued_after } => plain(
            "key_staged",
            match queued_after {
                Some(after) => format!(
                    "it is in no list: it is put on its queue by itself, after {} s at the latest",
                    after.as_secs_f64()
                ),
                None => "it is in no list: a cleaner must put it on its queue".to_owned(),
            },
        ),
        _ => ReasonView::default(),
    }
}

/// What only jobs of qless wait for.
fn of_qless(reason: Reason) -> ReasonView {
    match reason {
        Reason::Locked {
            worker,
            attempt,
            until,
        } => ReasonView {
            reason: "locked",
            text: format!(
                "it runs with {worker}, whose lock of qless is good until then by its own clock"
            ),
            at: Some(Moment(until)),
            attempt: Some(attempt),
            worker: Some(Named(worker)),
            ..ReasonView::default()
        },
        Reason::Throttled { by } => {
            let by = by.join(", ");
            ReasonView {
                reason: "throttled",
                text: format!("it waits for room under {by}"),
                detail: Some(by),
                ..ReasonView::default()
            }
        }
        _ => ReasonView::default(),
    }
}
