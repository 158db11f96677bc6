//! `workers`, `worker.deregister`: who works, and on what.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessReply, QlessTime};

use super::queues::some;
use crate::call::{Arguments, Call};
use crate::json::Writer;
use crate::procedures::configuration::number_of;
use crate::state::{ByTime, Qless, between};

/// Seconds after which a worker is forgotten that gave no sign of life.
const WORKER_AGE_MAX: f64 = 86_400.0;

/// Locks that run out later than in so many seconds do not count.
const HORIZON: f64 = 8_640_000.0;

/// `workers [worker]`: a worker's jobs and those whose locks ran out; or the numbers of both for all known workers, the
/// latest sign of life first. Those who gave none for long are forgotten before.
pub(super) fn workers(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let age = number_of(state, "max-worker-age", WORKER_AGE_MAX)?;

    forget_silent(state, call.after(-age));
    let (now, last) = (call.at(), call.after(HORIZON));
    let mut out = Writer::default();
    if let Some(worker) = arguments.get(0) {
        let jobs = state.worker_jobs(worker);
        out.begin();
        out.key("jobs").strings(latest_first(jobs, now, last));
        out.key("stalled")
            .strings(latest_first(jobs, QlessTime::default(), now));
        out.end();
    } else {
        out.list(state.workers().iter().rev(), |out, (_, worker)| {
            let jobs = state.worker_jobs(worker);
            out.begin();
            out.key("name").string(worker);
            out.key("jobs").count(between(jobs, now, last).count());
            out.key("stalled")
                .count(between(jobs, QlessTime::default(), now).count());
            out.end();
        });
    }
    Ok(out.into())
}

/// `worker.deregister worker..`: they are no longer known; their lists of jobs stay.
pub(super) fn deregister(
    state: &mut Qless,
    _: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    for worker in some(arguments, "Deregister(): No workers specified")? {
        state.see_worker(worker, None);
    }
    Ok(QlessReply::Nil)
}

/// Forgets workers whose last sign of life is from 0 to `until`, and their lists of jobs. The jobs stay locked.
fn forget_silent(state: &mut Qless, until: QlessTime) {
    let silent: Vec<Bytes> = between(state.workers(), QlessTime::default(), until)
        .map(|(_, worker)| worker.clone())
        .collect();
    for worker in silent {
        state.unlist_all(&worker);
        state.see_worker(&worker, None);
    }
}

/// The jids with a time from `from` to `to`, the latest first.
fn latest_first(jobs: &ByTime, from: QlessTime, to: QlessTime) -> Vec<&Bytes> {
    let mut jids: Vec<&Bytes> = between(jobs, from, to).map(|(_, jid)| jid).collect();
    jids.reverse();
    jids
}
