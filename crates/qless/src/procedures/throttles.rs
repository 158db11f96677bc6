//! Throttles: limits on the number of jobs that run at a time. Decides which jobs may run, which wait, and which
//! continue when a throttle has room again.
//!
//! A waiting job is in `pending` of one throttle and among its queue's throttled jobs, or in neither.

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::QlessState;

use super::history::{self, Limit};
use crate::call::Call;
use crate::number;
use crate::state::Qless;

/// Maximum number of jobs that continue when a job releases a throttle without a maximum.
const UNLIMITED_STEP: f64 = 10.0;

/// Returns the id of the throttle that every queue has.
pub(crate) fn queue_throttle(queue: &Bytes) -> Bytes {
    [b"ql:q:", &queue[..]].concat().into()
}

/// Returns the maximum number of jobs that may hold a throttle; 0 means no limit.
pub(crate) fn maximum(state: &Qless, throttle: &Bytes, server: Elapsed) -> f64 {
    let throttle = state.throttle(throttle, server);
    throttle.map_or(0.0, |it| it.maximum)
}

/// Whether one more job may hold a throttle.
pub(crate) fn is_available(state: &Qless, throttle: &Bytes, server: Elapsed) -> bool {
    let maximum = maximum(state, throttle, server);
    maximum == 0.0 || number::from_length(state.holders(throttle).len()) < maximum
}

/// Whether the queue's own throttle lets at least one more job run. Always true for callers whose generation has no
/// throttles.
pub(crate) fn queue_has_room(state: &Qless, call: &Call<'_>, queue: &Bytes) -> bool {
    !call.has_throttles() || is_available(state, &queue_throttle(queue), call.server)
}

/// Returns the first throttle that keeps the job from running; `None` if none does. A throttle that the job already
/// holds does not. Always `None` for callers whose generation has no throttles.
pub(crate) fn blocking_throttle(state: &Qless, jid: &Bytes, call: &Call<'_>) -> Option<Bytes> {
    let job = state.job(jid).filter(|_| call.has_throttles())?;
    let mut missing = (job.throttles.iter()).filter(|it| !state.holders(it).contains(jid));
    missing
        .find(|it| !is_available(state, it, call.server))
        .cloned()
}

/// Gives the job all its throttles. Does nothing for callers whose generation has no throttles.
pub(crate) fn acquire(state: &mut Qless, call: &Call<'_>, jid: &Bytes) {
    if !call.has_throttles() {
        return;
    }
    for throttle in throttles_of_job(state, jid) {
        if !state.holders(&throttle).contains(jid) {
            state.set_held_since(jid, &throttle, Some(call.at()));
        }
    }
}

/// Moves the job from its queue's ready jobs to those that wait for a throttle.
pub(crate) fn wait(
    state: &mut Qless,
    call: &Call<'_>,
    jid: &Bytes,
    queue: &Bytes,
    throttle: &Bytes,
    limit: Limit,
) {
    state.move_to(jid, None);
    state.set_pending_since(jid, throttle, Some(call.at()));
    state.set_throttled(jid, Some((queue.clone(), call.at())));
    let job = state.job(jid);
    if job.is_some_and(|job| job.state != QlessState::Throttled) {
        let extra = vec![history::text("queue", queue)];
        let what = Bytes::from_static(b"throttled");
        history::append(state, jid, limit, what, call.now, extra);
        state.edit(jid, |job| *job.state = QlessState::Throttled);
    }
}

/// Ends all waits of the job for throttles, because it moves elsewhere.
pub(crate) fn stop_waiting(state: &mut Qless, jid: &Bytes) {
    state.set_throttled(jid, None);
    let pending = state.job(jid).map(|job| job.pending.clone());
    for (throttle, _) in pending.unwrap_or_default() {
        state.set_pending_since(jid, &throttle, None);
    }
}

/// Takes all throttles from a job that ends or is given back, including those that it kept when it moved to another
/// queue.
pub(crate) fn release(state: &mut Qless, call: &Call<'_>, jid: &Bytes) {
    let holds = state.job(jid).map(|job| job.holds.clone());
    let mut list = throttles_of_job(state, jid);
    list.extend(holds.unwrap_or_default().into_iter().map(|it| it.0));
    list.sort();
    list.dedup();
    for throttle in list {
        release_one(state, call, jid, &throttle);
    }
}

/// Takes a throttle from a job that holds it, or ends the job's wait for it. Then the jobs that have room now continue.
pub(crate) fn release_one(state: &mut Qless, call: &Call<'_>, jid: &Bytes, throttle: &Bytes) {
    if state.holders(throttle).contains(jid) {
        state.set_held_since(jid, throttle, None);
    } else if state.is_pending(jid, throttle) {
        resume(state, call, jid, throttle);
    }
    let maximum = maximum(state, throttle, call.server);
    let holders = number::from_length(state.holders(throttle).len());
    let mut room = match maximum {
        0.0 => UNLIMITED_STEP,
        _ => maximum - holders,
    };
    while room > 0.0 {
        let Some((_, next)) = state.pending(throttle).first().cloned() else {
            break;
        };
        resume(state, call, &next, throttle);
        room -= 1.0;
    }
}

/// Ends a job's wait for a throttle and makes it ready in its queue. The job takes its throttles when it is popped;
/// until then its state stays `throttled`.
fn resume(state: &mut Qless, call: &Call<'_>, jid: &Bytes, throttle: &Bytes) {
    state.set_pending_since(jid, throttle, None);
    let place = state.job(jid).and_then(|job| job.throttled.clone());
    if let Some((queue, _)) = place {
        state.set_throttled(jid, None);
        state.make_ready(jid, &queue, call.at());
    }
}

fn throttles_of_job(state: &Qless, jid: &Bytes) -> Vec<Bytes> {
    let job = state.job(jid);
    job.map(|job| job.throttles.clone()).unwrap_or_default()
}
