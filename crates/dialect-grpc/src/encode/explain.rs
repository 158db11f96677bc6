//! Why a job is not running: codes for programs, sentences for people.

use ganger_proto::v1;
use ganger_types::ShardId;
use ganger_types::why::{Explanation, Reason};

use super::{global, ms, state};

/// Why a job is not running, or that it is.
pub(crate) fn explanation(shard: &ShardId, why: &Explanation) -> v1::Explanation {
    let reasons = why.reasons.iter();
    v1::Explanation {
        job: global(shard, &why.job),
        state: state(why.state),
        queue: why.queue.to_text().into_owned(),
        reasons: reasons.map(|one| reason(shard, why, one)).collect(),
    }
}

fn reason(shard: &ShardId, why: &Explanation, reason: &Reason) -> v1::Reason {
    let mut view = v1::Reason {
        code: reason.code().to_owned(),
        text: reason.text(&why.queue),
        ..v1::Reason::default()
    };
    match reason {
        Reason::WaitsFor { count, some } => {
            let jobs = some.iter().map(|(id, stands)| v1::JobInState {
                job: global(shard, id),
                state: state(*stands),
            });
            view.count = Some(*count);
            view.jobs = jobs.collect();
        }
        Reason::WaitsElsewhere {
            count,
            some,
            asked_at,
        } => {
            view.at_us = asked_at.map(|at| at.0);
            view.count = Some(*count);
            view.elsewhere = some.iter().map(|job| global(&job.shard, &job.id)).collect();
        }
        Reason::NotBefore { at, after_attempt } => {
            view.at_us = Some(at.0);
            view.attempt = *after_attempt;
        }
        Reason::QueueLimit { running, limit } => {
            view.count = Some(*running);
            view.limit = Some(u64::from(*limit));
        }
        Reason::Behind { jobs, .. } => view.count = Some(*jobs),
        Reason::NoWorker { silent_for } => view.for_ms = silent_for.map(ms),
        Reason::Released { times, worker, .. } => {
            view.count = Some(u64::from(*times));
            view.worker = worker.to_text().into_owned();
        }
        Reason::Runs {
            worker,
            attempt,
            lease_left,
        } => {
            view.worker = worker.to_text().into_owned();
            view.attempt = *attempt;
            view.for_ms = Some(ms(*lease_left));
        }
        Reason::Locked {
            worker,
            attempt,
            until,
        } => {
            view.worker = worker.to_text().into_owned();
            view.attempt = *attempt;
            view.at_us = Some(until.0);
        }
        Reason::KeyLeased { session, left, .. } => {
            view.worker.clone_from(session);
            view.for_ms = left.map(ms);
        }
        Reason::KeyTaken { back_after } => view.for_ms = back_after.map(ms),
        Reason::KeyStaged { queued_after } => view.for_ms = queued_after.map(ms),
        Reason::QueuePaused | Reason::Throttled { .. } | Reason::Ended { .. } | Reason::Next => {}
    }
    view
}
