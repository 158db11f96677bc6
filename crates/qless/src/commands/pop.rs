//! `pop queue worker count`: hands jobs out. First those whose holders lost them, then what is ready by the caller's
//! time, all within one count.

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

/// The jobs that were handed out, as they are then, in the order in which they were.
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
    /// The worker that gets the jobs.
    pub(crate) worker: &'a Bytes,
    /// At most so many.
    pub(crate) count: usize,
    /// Seconds for which the locks are good.
    pub(crate) heartbeat: f64,
}

/// Hands jobs out; which, in order.
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

    state.see_worker(worker, Some(call.at()));
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
        // A child may have taken the place of an older job of its name that was handed out just now.
        handed.retain(|jid| state.is_held(jid));
        promote(state, queue, call.at(), count - handed.len());
        take_ready(state, call, queue, count, rounds, hand_options, &mut handed);
    }
    Ok(handed)
}

/// Hands ready jobs out until there are `count`. Those that a throttle keeps from running wait for it, and further ones
/// are looked at only so often.
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

/// How many more jobs of the queue may be held. Locks that ran out do not count; generations with throttles have those
/// instead.
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
    let held = since(state.in_order(queue, QlessSet::Locks), call.at());
    Ok(maximum - held.take(maximum).count())
}

/// How often ready jobs are looked at.
fn rounds(state: &Qless, call: &Call<'_>, queue: &Bytes) -> Result<i64, QlessRefusal> {
    if call.has_throttles() {
        Ok(number::cut(max_pop_retry(state, queue)?.ceil()))
    } else {
        Ok(1)
    }
}
