//! `workers`, `worker.deregister`: the known workers and the jobs that they hold.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessReply, QlessTime};

use super::queues::at_least_one;
use crate::call::{Arguments, Call};
use crate::json::Writer;
use crate::procedures::configuration::number_of;
use crate::state::{Qless, TimeIndex, between};

/// Default time in seconds after which a worker without a sign of life is forgotten: the option `max-worker-age`.
const WORKER_AGE_MAX: f64 = 86_400.0;

/// Locks that expire later than this many seconds from now (100 days) do not count.
const EXPIRY_HORIZON: f64 = 8_640_000.0;

/// `workers [worker]`: returns the jobs of a worker and those whose locks have expired; or the numbers of both for all
/// known workers, the latest sign of life first. Forgets workers without a recent sign of life before that.
pub(super) fn workers(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let age = number_of(state, "max-worker-age", WORKER_AGE_MAX)?;

    forget_silent(state, call.after(-age));
    let (now, last) = (call.at(), call.after(EXPIRY_HORIZON));
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

/// `worker.deregister worker..`: makes the workers unknown. Their lists of jobs stay.
pub(super) fn deregister(
    state: &mut Qless,
    _: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    for worker in at_least_one(arguments, "Deregister(): No workers specified")? {
        state.set_worker_seen(worker, None);
    }
    Ok(QlessReply::Nil)
}

/// Forgets workers whose last sign of life is from 0 to `until`, and their lists of jobs. The jobs stay locked.
fn forget_silent(state: &mut Qless, until: QlessTime) {
    let silent: Vec<Bytes> = between(state.workers(), QlessTime::default(), until)
        .map(|(_, worker)| worker.clone())
        .collect();
    for worker in silent {
        state.clear_worker_entries(&worker);
        state.set_worker_seen(&worker, None);
    }
}

/// Returns the jids with a time from `from` to `to`, both included, the latest first.
fn latest_first(jobs: &TimeIndex, from: QlessTime, to: QlessTime) -> Vec<&Bytes> {
    let mut jids: Vec<&Bytes> = between(jobs, from, to).map(|(_, jid)| jid).collect();
    jids.reverse();
    jids
}
