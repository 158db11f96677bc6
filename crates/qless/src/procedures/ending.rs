//! A job stops running: its lock goes, and it fails if there is no more to try.

use bytes::Bytes;
use ganger_types::qless::{QlessFailure, QlessState};

use super::history::{self, Limit};
use super::throttles;
use crate::call::Call;
use crate::state::Qless;
use crate::statistics;

/// How a job that has no retries left says why it failed.
pub(crate) fn exhausted(queue: &Bytes, now: f64) -> QlessFailure {
    QlessFailure {
        group: exhausted_group(queue),
        message: [b"Job exhausted retries in queue \"", &queue[..], b"\""]
            .concat()
            .into(),
        when: now,
        worker: Bytes::new(),
    }
}

/// The group of jobs of a queue that have no retries left.
pub(crate) fn exhausted_group(queue: &Bytes) -> Bytes {
    [b"failed-retries-", &queue[..]].concat().into()
}

/// Takes the job from its holder and out of line.
pub(crate) fn stop(state: &mut Qless, call: &Call<'_>, jid: &Bytes) {
    if let Some(worker) = state.job(jid).map(|job| job.worker.clone()) {
        state.list(jid, &worker, None);
    }
    state.place(jid, None);
    throttles::release(state, call, jid);
}

/// Fails a job that is in line nowhere. The queue's statistics of the day count it.
pub(crate) fn fail(
    state: &mut Qless,
    call: &Call<'_>,
    jid: &Bytes,
    queue: &Bytes,
    failure: QlessFailure,
) {
    state.edit(jid, |job| {
        *job.state = QlessState::Failed;
        *job.worker = Bytes::new();
        *job.expires = 0.0;
    });
    state.enter_failures(jid, failure);
    state.edit_statistics(queue, statistics::day(call.now), |it| {
        it.failures = it.failures.saturating_add(1);
        it.failed = it.failed.saturating_add(1);
    });
}

/// One of the failed jobs of a queue is no longer: counted on the day when it failed.
pub(crate) fn unfailed(state: &mut Qless, queue: &Bytes, failed_at: f64) {
    state.edit_statistics(queue, statistics::day(failed_at), |it| {
        it.failed = it.failed.saturating_sub(1);
    });
}

/// Appends to the history that the job failed because it has no retries left.
pub(crate) fn note_exhausted(
    state: &mut Qless,
    call: &Call<'_>,
    jid: &Bytes,
    group: &Bytes,
    limit: Limit,
) {
    let extra = vec![history::text("group", group)];
    let what = Bytes::from_static(b"failed");
    history::append(state, jid, limit, what, call.now, extra);
}
