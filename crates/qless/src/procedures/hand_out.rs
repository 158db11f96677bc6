//! Gives a job to the worker that pops it.

use bytes::Bytes;
use ganger_types::qless::{QlessSet, QlessState};

use super::history::{self, Limit};
use crate::call::Call;
use crate::events;
use crate::number;
use crate::state::Qless;
use crate::statistics;

/// Options for jobs that a pop gives to a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandOutOptions<'a> {
    /// Name of the worker that gets the jobs.
    pub(crate) worker: &'a Bytes,
    /// Length of the lock in seconds, counted from the caller's time.
    pub(crate) heartbeat: f64,
    /// Maximum number of entries of a job's history.
    pub(crate) history: Limit,
}

/// Locks a job of the queue for a worker.
pub(crate) fn hand_out(
    state: &mut Qless,
    call: &mut Call<'_>,
    queue: &Bytes,
    jid: &Bytes,
    options: HandOutOptions<'_>,
) {
    let Some(waited_since) = state.job(jid).map(|job| job.time) else {
        return;
    };
    let HandOutOptions { worker, .. } = options;
    let extra = vec![history::text("worker", worker)];
    let what = Bytes::from_static(b"popped");
    history::append(state, jid, options.history, what, call.now, extra);
    let waited = number::sum(call.now, -waited_since);
    state.edit_statistics(queue, statistics::day(call.now), |it| {
        statistics::add(&mut it.wait, waited);
    });
    let expires = call.after(options.heartbeat);
    state.set_worker_entry(jid, worker, Some(expires));
    state.edit(jid, |job| {
        *job.time = call.now;
        *job.worker = worker.clone();
        *job.expires = expires.seconds();
        *job.state = QlessState::Running;
        *job.handed_out += 1;
        *job.lease = None;
    });
    state.move_to_set(jid, queue, QlessSet::Locks, expires);
    events::publish_if_tracked(state, call, "ql:popped", jid);
}
