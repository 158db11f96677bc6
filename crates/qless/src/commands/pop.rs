//! `pop queue worker count`: gives jobs to a worker. Jobs whose locks have expired come first, then the jobs that are
//! ready by the caller's time. `count` is the maximum of both together.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessRefusal, QlessSet};

use super::get;
use crate::call::{Arguments, Call, limit_of_count, whole};
use crate::number;
use crate::procedures::configuration::{heartbeat, max_concurrency, max_pop_retry};
use crate::procedures::expiry::{self, handle_expired_locks};
use crate::procedures::hand_out::{HandOutOptions, hand_out};
use crate::procedures::history;
use crate::procedures::promotion::promote;
use crate::procedures::spawning::spawn;
use crate::procedures::throttles;
use crate::state::{Qless, since};

/// Pops jobs and returns them as JSON, in the order in which they were locked.
pub(super) fn pop(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let queue = arguments.queue(0)?;
    let worker = arguments.required(1, "Pop(): Arg \"worker\" missing")?;
    let count = whole(arguments.number(2, "Pop(): Arg \"count\" missing or not a number: ")?)?;
    let request = PopRequest {
        queue,
        worker,
        count: limit_of_count(count),
        heartbeat: heartbeat(state, queue)?,
    };
    let popped = pop_jobs(state, call, request)?;
    Ok(get::jobs(state, call, &popped))
}

/// Request of a worker for jobs of a queue.
#[derive(Clone, Copy)]
pub(crate) struct PopRequest<'a> {
    /// The queue to take jobs from.
    pub(crate) queue: &'a Bytes,
    /// Name of the worker that gets the jobs.
    pub(crate) worker: &'a Bytes,
    /// Maximum number of jobs.
    pub(crate) count: usize,
    /// Length of the locks in seconds.
    pub(crate) heartbeat: f64,
}

/// Locks jobs for the worker and returns their jids in order; empty if the queue is paused.
pub(crate) fn pop_jobs(
    state: &mut Qless,
    call: &mut Call<'_>,
    request: PopRequest<'_>,
) -> Result<Vec<Bytes>, QlessRefusal> {
    let PopRequest { queue, worker, .. } = request;
    if state.is_paused(queue) {
        return Ok(Vec::new());
    }
    let grace = expiry::grace_period(state)?;
    let history = history::limit(state)?;
    let count = request.count.min(concurrency_left(state, call, queue)?);
    let rounds = rounds_max(state, call, queue)?;

    state.set_worker_seen(worker, Some(call.at()));
    let options = HandOutOptions {
        worker,
        heartbeat: request.heartbeat,
        history,
    };
    let mut popped = handle_expired_locks(state, call, queue, count, grace, history);
    for jid in &popped {
        hand_out(state, call, queue, jid, options);
    }
    if throttles::queue_has_room(state, call, queue) {
        spawn(state, call, queue, count - popped.len(), history);
        // A new child may have replaced an older job of the same jid that was just locked.
        popped.retain(|jid| state.is_locked(jid));
        promote(state, queue, call.at(), count - popped.len());
        pop_ready(state, call, queue, count, rounds, options, &mut popped);
    }
    Ok(popped)
}

/// Locks ready jobs until `popped` has `count` of them. Jobs that a throttle blocks wait for the throttle; `rounds`
/// limits how often other jobs are tried instead.
fn pop_ready(
    state: &mut Qless,
    call: &mut Call<'_>,
    queue: &Bytes,
    count: usize,
    rounds: i64,
    options: HandOutOptions<'_>,
    popped: &mut Vec<Bytes>,
) {
    for _ in 0..rounds {
        let wanted = count - popped.len();
        let ready: Vec<Bytes> = state.work(queue).take(wanted).cloned().collect();
        if ready.is_empty() {
            break;
        }
        for jid in ready {
            if let Some(throttle) = throttles::blocking_throttle(state, &jid, call) {
                throttles::wait(state, call, &jid, queue, &throttle, options.history);
            } else {
                throttles::acquire(state, call, &jid);
                hand_out(state, call, queue, &jid, options);
                popped.push(jid);
            }
        }
    }
}

/// Returns how many more jobs of the queue may be locked under its limit of concurrency. Expired locks do not count.
/// Generations with throttles have no such limit.
pub(crate) fn concurrency_left(
    state: &Qless,
    call: &Call<'_>,
    queue: &Bytes,
) -> Result<usize, QlessRefusal> {
    let maximum = if call.has_throttles() {
        0.0
    } else {
        max_concurrency(state, queue)?
    };
    if maximum <= 0.0 {
        return Ok(usize::MAX);
    }
    let maximum = limit_of_count(number::truncate(maximum));
    let held = since(state.time_index(queue, QlessSet::Locks), call.at());
    Ok(maximum - held.take(maximum).count())
}

/// Returns the maximum number of rounds through the ready jobs; 1 in generations without throttles.
fn rounds_max(state: &Qless, call: &Call<'_>, queue: &Bytes) -> Result<i64, QlessRefusal> {
    if call.has_throttles() {
        Ok(number::truncate(max_pop_retry(state, queue)?.ceil()))
    } else {
        Ok(1)
    }
}
