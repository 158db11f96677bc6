//! Handing a job out to a worker.

use bytes::Bytes;
use ganger_types::qless::{QlessSet, QlessState};

use super::history::{self, Limit};
use crate::call::Call;
use crate::events;
use crate::number;
use crate::state::Qless;
use crate::statistics;

/// To whom jobs go, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hand<'a> {
    /// The worker that gets the jobs.
    pub(crate) worker: &'a Bytes,
    /// Seconds for which it gets the lock.
    pub(crate) heartbeat: f64,
    /// How long a history may become.
    pub(crate) history: Limit,
}

/// Hands a job of the queue out.
pub(crate) fn hand_out(
    state: &mut Qless,
    call: &mut Call<'_>,
    queue: &Bytes,
    jid: &Bytes,
    hand: Hand<'_>,
) {
    let Some(waited_since) = state.job(jid).map(|job| job.time) else {
        return;
    };
    let Hand { worker, .. } = hand;
    let extra = vec![history::text("worker", worker)];
    let what = Bytes::from_static(b"popped");
    history::append(state, jid, hand.history, what, call.now, extra);
    let waited = number::sum(call.now, -waited_since);
    state.edit_statistics(queue, statistics::day(call.now), |it| {
        statistics::add(&mut it.wait, waited);
    });
    let expires = call.after(hand.heartbeat);
    state.list(jid, worker, Some(expires));
    state.edit(jid, |job| {
        *job.time = call.now;
        *job.worker = worker.clone();
        *job.expires = expires.seconds();
        *job.state = QlessState::Running;
        *job.handed_out += 1;
        *job.lease = None;
    });
    state.place_at(jid, queue, QlessSet::Locks, expires);
    events::tracked(state, call, "ql:popped", jid);
}
