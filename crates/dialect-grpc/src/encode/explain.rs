//! Why a job is not running: codes for programs, sentences for people.

use ganger_proto::v1;
use ganger_types::ShardId;
use ganger_types::reply::{Explanation, Reason};

use super::{global, ms, state};

/// Why a job is not running, or that it is.
pub(crate) fn explanation(shard: &ShardId, why: &Explanation) -> v1::Explanation {
    let reasons = why.reasons.iter();
    v1::Explanation {
        job: global(shard, &why.job),
        state: state(why.state),
        reasons: reasons.map(|one| reason(shard, one)).collect(),
    }
}

fn reason(shard: &ShardId, reason: &Reason) -> v1::Reason {
    let mut view = v1::Reason::default();
    let code = match reason {
        Reason::WaitsFor { count, some } => {
            view.count = Some(*count);
            view.jobs = some
                .iter()
                .map(|(id, stands)| v1::JobInState {
                    job: global(shard, id),
                    state: state(*stands),
                })
                .collect();
            "waits_for"
        }
        Reason::WaitsElsewhere {
            count,
            some,
            asked_at,
        } => {
            view.at_us = asked_at.map(|at| at.0);
            view.count = Some(*count);
            view.elsewhere = some.iter().map(|job| global(&job.shard, &job.id)).collect();
            "waits_elsewhere"
        }
        Reason::NotBefore { at, after_attempt } => {
            view.at_us = Some(at.0);
            view.attempt = *after_attempt;
            "not_before"
        }
        Reason::QueuePaused => "queue_paused",
        Reason::QueueLimit { running, limit } => {
            view.count = Some(*running);
            view.limit = Some(u64::from(*limit));
            "queue_limit"
        }
        Reason::Behind { jobs, .. } => {
            view.count = Some(*jobs);
            "behind"
        }
        Reason::NoWorker { silent_for } => {
            view.for_ms = silent_for.map(ms);
            "no_worker"
        }
        Reason::Released { times, worker, .. } => {
            view.count = Some(u64::from(*times));
            view.worker = worker.to_text().into_owned();
            "released"
        }
        Reason::Runs {
            worker,
            attempt,
            lease_left,
        } => {
            view.worker = worker.to_text().into_owned();
            view.attempt = *attempt;
            view.for_ms = Some(ms(*lease_left));
            "runs"
        }
        Reason::Locked {
            worker,
            attempt,
            until,
        } => {
            view.worker = worker.to_text().into_owned();
            view.attempt = *attempt;
            view.at_us = Some(until.0);
            "locked"
        }
        Reason::Throttled { .. } => "throttled",
        Reason::KeyLeased { session, left, .. } => {
            view.worker.clone_from(session);
            view.for_ms = left.map(ms);
            "key_leased"
        }
        Reason::KeyTaken { back_after } => {
            view.for_ms = back_after.map(ms);
            "key_taken"
        }
        Reason::KeyStaged { queued_after } => {
            view.for_ms = queued_after.map(ms);
            "key_staged"
        }
        Reason::Ended { .. } => "ended",
        Reason::Next => "next",
    };
    code.clone_into(&mut view.code);
    view.text = sentence(reason);
    view
}

fn sentence(reason: &Reason) -> String {
    match reason {
        Reason::WaitsFor { count: 1, .. } => "it waits for another job".into(),
        Reason::WaitsFor { count, .. } => format!("it waits for {count} other jobs"),
        Reason::WaitsElsewhere { count: 1, .. } => "it waits for a job of another shard".into(),
        Reason::WaitsElsewhere { count, .. } => {
            format!("it waits for {count} jobs of other shards")
        }
        Reason::NotBefore {
            after_attempt: 0, ..
        } => "its time has not come".into(),
        Reason::NotBefore { after_attempt, .. } => {
            format!("attempt {after_attempt} failed, and it is tried again after a pause")
        }
        Reason::QueuePaused => "its queue is paused: resume it to let it run".into(),
        Reason::QueueLimit { running, limit } => {
            format!("its queue runs {running} jobs, the limit is {limit}")
        }
        Reason::Behind { jobs, more: true } => format!("more than {jobs} jobs go first"),
        Reason::Behind { jobs: 1, .. } => "one job goes first".into(),
        Reason::Behind { jobs, .. } => format!("{jobs} jobs go first"),
        Reason::NoWorker { silent_for: None } => {
            "no worker has asked its queue since the server started: start one".into()
        }
        Reason::NoWorker {
            silent_for: Some(silent),
        } => {
            format!("no worker has asked its queue for {} s", silent.as_secs())
        }
        Reason::Released { worker, reason, .. } if reason.is_empty() => {
            format!("worker {} gave it back", worker.to_text())
        }
        Reason::Released { worker, reason, .. } => {
            format!("worker {} gave it back: {reason}", worker.to_text())
        }
        Reason::Runs {
            worker, attempt, ..
        } => {
            format!(
                "it runs: attempt {attempt}, with worker {}",
                worker.to_text()
            )
        }
        Reason::Locked { worker, .. } => format!(
            "it runs with worker {}, whose lock of qless is good until then by its own clock",
            worker.to_text()
        ),
        Reason::Throttled { by } => format!("it waits for room under {}", by.join(", ")),
        Reason::KeyLeased { .. } | Reason::KeyTaken { .. } | Reason::KeyStaged { .. } => {
            sentence_of_keys(reason)
        }
        Reason::Ended { detail } if detail.is_empty() => "it has ended".into(),
        Reason::Ended { detail } => format!("it has ended: {detail}"),
        Reason::Next => "it may run now: the next worker that asks gets it".into(),
    }
}

/// Where only items of raw keys stand.
fn sentence_of_keys(reason: &Reason) -> String {
    match reason {
        Reason::KeyLeased {
            session,
            left: None,
            ..
        } => format!("{session} works on it under a lease without an end"),
        Reason::KeyLeased {
            session,
            left: Some(left),
            goes_back,
        } => {
            let then = if *goes_back {
                "it goes back to its queue by itself"
            } else {
                "a cleaner must put it back"
            };
            let left = left.as_secs();
            format!("{session} works on it under a lease that runs out in {left} s; then {then}")
        }
        Reason::KeyTaken { back_after } => {
            let then = match back_after {
                Some(after) => format!(
                    "it goes back by itself, {} s after it was taken at the latest",
                    after.as_secs()
                ),
                None => "a cleaner must put it back".to_owned(),
            };
            format!("it was taken from its queue and nobody holds a lease: {then}")
        }
        Reason::KeyStaged { queued_after } => {
            let then = match queued_after {
                Some(after) => format!(
                    "it is put on its queue by itself, after {} s at the latest",
                    after.as_secs()
                ),
                None => "a cleaner must put it on its queue".to_owned(),
            };
            format!("it is in no list: {then}")
        }
        _ => String::new(),
    }
}
