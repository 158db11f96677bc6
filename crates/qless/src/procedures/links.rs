//! Dependencies between jobs: links, and what happens when the last dependency of a job is complete.

use bytes::Bytes;
use ganger_types::qless::{QlessSet, QlessState, QlessTag, QlessTime};

use crate::json::tag_text;
use crate::state::Qless;

/// Returns the jids of a list that a client sent as JSON.
pub(crate) fn jids(list: &[QlessTag]) -> Vec<Bytes> {
    list.iter().map(tag_text).collect()
}

/// Makes the job depend on the jobs of `on` that exist and are not complete. The others count as met.
pub(crate) fn link(state: &mut Qless, jid: &Bytes, on: &[Bytes]) {
    for on in on {
        let other = state.job(on);
        if other.is_some_and(|it| it.state != QlessState::Complete) {
            state.link(jid, on);
        }
    }
}

/// Whether the job waits for another job.
pub(crate) fn is_waiting(state: &Qless, jid: &Bytes) -> bool {
    let job = state.job(jid);
    job.is_some_and(|job| !job.dependencies.is_empty())
}

/// Moves a job that waits for others into `depends`, and stores the time for which it is scheduled after that. `None`
/// keeps a time that was stored before.
pub(crate) fn wait_for_dependencies(
    state: &mut Qless,
    jid: &Bytes,
    queue: &Bytes,
    now: QlessTime,
    scheduled: Option<QlessTime>,
) {
    state.move_to_set(jid, queue, QlessSet::Depends, now);
    state.edit(jid, |job| {
        *job.state = QlessState::Depends;
        if scheduled.is_some() {
            *job.scheduled = scheduled;
        }
    });
}

/// Continues the dependents of a complete job. A dependent that waits for no other job becomes scheduled if a time is
/// stored for it, and ready otherwise.
pub(crate) fn resume_dependents(state: &mut Qless, dependents: &[Bytes], now: QlessTime) {
    for dependent in dependents {
        let Some(job) = state.job(dependent) else {
            continue;
        };
        if !job.dependencies.is_empty() || job.state != QlessState::Depends {
            continue;
        }
        let (queue, scheduled) = (job.queue.clone(), job.scheduled);
        match scheduled {
            Some(at) => {
                state.move_to_set(dependent, &queue, QlessSet::Scheduled, at);
                state.edit(dependent, |job| {
                    *job.state = QlessState::Scheduled;
                    *job.scheduled = None;
                });
            }
            None => make_ready(state, dependent, &queue, now),
        }
    }
}

/// Makes a waiting job ready, and sets its state.
pub(crate) fn make_ready(state: &mut Qless, jid: &Bytes, queue: &Bytes, now: QlessTime) {
    state.make_ready(jid, queue, now);
    state.edit(jid, |job| *job.state = QlessState::Waiting);
}
