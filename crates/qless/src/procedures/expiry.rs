//! Expired locks. Only a pop checks for them. The first expiry warns the worker and starts a grace period; the second
//! takes the job from the worker. The job is then popped again if it has retries left, and fails otherwise.

use bytes::Bytes;
use ganger_types::qless::{QlessRefusal, QlessSet};

use super::configuration::{GRACE, number_of};
use super::history::{self, Limit};
use super::{ending, throttles};
use crate::call::Call;
use crate::events;
use crate::state::{Qless, until};
use crate::statistics;

/// Length of the grace period in seconds; 0 or less if there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GracePeriod(f64);

/// Returns the grace period that the option `grace-period` sets.
pub(crate) fn grace_period(state: &Qless) -> Result<GracePeriod, QlessRefusal> {
    number_of(state, "grace-period", GRACE).map(GracePeriod)
}

/// Returns the first `count` jobs of the queue whose locks have expired, by expiry.
pub(crate) fn expired_locks(
    state: &Qless,
    call: &Call<'_>,
    queue: &Bytes,
    count: usize,
) -> Vec<Bytes> {
    until(state.time_index(queue, QlessSet::Locks), call.at())
        .take(count)
        .map(|(_, jid)| jid.clone())
        .collect()
}

/// Handles up to `count` expired locks, and returns the jobs to pop again, in order. These jobs are still in their
/// sets, but in no worker's list.
pub(crate) fn handle_expired_locks(
    state: &mut Qless,
    call: &mut Call<'_>,
    queue: &Bytes,
    count: usize,
    grace: GracePeriod,
    history: Limit,
) -> Vec<Bytes> {
    let mut to_pop = expired_locks(state, call, queue, count);
    to_pop.retain(|jid| handle_expired_lock(state, call, queue, jid, grace, history));
    to_pop
}

fn handle_expired_lock(
    state: &mut Qless,
    call: &mut Call<'_>,
    queue: &Bytes,
    jid: &Bytes,
    grace: GracePeriod,
    history: Limit,
) -> bool {
    let Some(job) = state.job(jid) else {
        return false;
    };
    let (worker, was_warned) = (job.worker.clone(), job.is_warned);
    state.set_worker_entry(jid, &worker, None);
    if !was_warned || grace.0 <= 0.0 {
        warn(state, call, queue, jid, grace, history);
    }
    (was_warned || grace.0 <= 0.0) && use_retry(state, call, queue, jid, history)
}

/// Warns the worker that holds the job, and extends the lock by the grace period.
fn warn(
    state: &mut Qless,
    call: &mut Call<'_>,
    queue: &Bytes,
    jid: &Bytes,
    grace: GracePeriod,
    limit: Limit,
) {
    let Some(worker) = state.job(jid).map(|job| job.worker.clone()) else {
        return;
    };
    events::publish_if_tracked(state, call, "ql:stalled", jid);
    history::timed_out(state, jid, limit, call.now);
    state.edit(jid, |job| *job.is_warned = true);
    events::lock_lost(call, jid, &worker);
    state.move_to_set(jid, queue, QlessSet::Locks, call.after(grace.0));
    state.edit_statistics(queue, statistics::day(call.now), |it| {
        it.retries = it.retries.saturating_add(1);
    });
}

/// Takes the job from its worker at the cost of a retry. Returns whether it had one; if not, the job has failed.
fn use_retry(
    state: &mut Qless,
    call: &mut Call<'_>,
    queue: &Bytes,
    jid: &Bytes,
    limit: Limit,
) -> bool {
    state.edit(jid, |job| {
        *job.is_warned = false;
        *job.remaining -= 1.0;
    });
    let Some(job) = state.job(jid).filter(|job| job.remaining < 0.0) else {
        return true;
    };
    let worker = job.worker.clone();
    let failure = ending::exhausted_failure(queue, call.now);
    state.move_to(jid, None);
    throttles::release(state, call, jid);
    ending::append_exhausted(state, call, jid, &failure.group, limit);
    ending::fail(state, call, jid, queue, failure.clone());
    events::publish_if_tracked(state, call, "ql:failed", jid);
    events::failed(call, jid, &failure.group, &failure.message, &worker);
    false
}
