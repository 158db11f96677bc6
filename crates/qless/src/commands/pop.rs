//! `pop queue worker count`: gives jobs to a worker. Jobs whose locks have expired come first, then the jobs that are
//! ready by the caller's time. `count` is the maximum of both together.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessRefusal, QlessSet};

use super::get;
use crate::call::{Arguments, Call, at_most, whole};
use crate::number;
use crate::procedures::configuration::{heartbeat, max_concurrency, max_pop_retry};
use crate::procedures::expiry::{self, expire};
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
    let wanted = PopRequest {
        queue,
        worker,
        count: at_most(count),
        heartbeat: heartbeat(state, queue)?,
    };
    let handed = take(state, call, wanted)?;
    Ok(get::jobs(state, call, &handed))
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
pub(crate) fn take(
    state: &mut Qless,
    call: &mut Call<'_>,
    wanted: PopRequest<'_>,
) -> Result<Vec<Bytes>, QlessRefusal> {
    let PopRequest { queue, worker, .. } = wanted;
    if state.is_paused(queue) {
        return Ok(Vec::new());
    }
    let grace = expiry::grace(state)?;
    let history = history::limit(state)?;
    let count = wanted.count.min(room(state, call, queue)?);
    let rounds = rounds(state, call, queue)?;

    state.set_worker_seen(worker, Some(call.at()));
    let hand_options = HandOutOptions {
        worker,
        heartbeat: wanted.heartbeat,
        history,
    };
    let mut handed = expire(state, call, queue, count, grace, history);
    for jid in &handed {
        hand_out(state, call, queue, jid, hand_options);
    }
    if throttles::has_room(state, call, queue) {
        spawn(state, call, queue, count - handed.len(), history);
        // A new child may have replaced an older job of the same jid that was just locked.
        handed.retain(|jid| state.is_locked(jid));
        promote(state, queue, call.at(), count - handed.len());
        take_ready(state, call, queue, count, rounds, hand_options, &mut handed);
    }
    Ok(handed)
}

/// Locks ready jobs until `handed` has `count` of them. Jobs that a throttle blocks wait for the throttle; `rounds`
/// limits how often other jobs are tried instead.
fn take_ready(
    state: &mut Qless,
    call: &mut Call<'_>,
    queue: &Bytes,
    count: usize,
    rounds: i64,
    hand_options: HandOutOptions<'_>,
    handed: &mut Vec<Bytes>,
) {
    for _ in 0..rounds {
        let wanted = count - handed.len();
        let ready: Vec<Bytes> = state.work(queue).take(wanted).cloned().collect();
        if ready.is_empty() {
            break;
        }
        for jid in ready {
            if let Some(throttle) = throttles::obstacle(state, &jid, call) {
                throttles::wait(state, call, &jid, queue, &throttle, hand_options.history);
            } else {
                throttles::acquire(state, call, &jid);
                hand_out(state, call, queue, &jid, hand_options);
                handed.push(jid);
            }
        }
    }
}

/// Returns how many more jobs of the queue may be locked under its limit of concurrency. Expired locks do not count.
/// Generations with throttles have no such limit.
pub(crate) fn room(state: &Qless, call: &Call<'_>, queue: &Bytes) -> Result<usize, QlessRefusal> {
    let maximum = if call.has_throttles() {
        0.0
    } else {
        max_concurrency(state, queue)?
    };
    if maximum <= 0.0 {
        return Ok(usize::MAX);
    }
    let maximum = at_most(number::cut(maximum));
    let held = since(state.time_index(queue, QlessSet::Locks), call.at());
    Ok(maximum - held.take(maximum).count())
}

/// Returns the maximum number of rounds through the ready jobs; 1 in generations without throttles.
fn rounds(state: &Qless, call: &Call<'_>, queue: &Bytes) -> Result<i64, QlessRefusal> {
    if call.has_throttles() {
        Ok(number::cut(max_pop_retry(state, queue)?.ceil()))
    } else {
        Ok(1)
    }
}
