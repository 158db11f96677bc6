//! The end of a run: the job loses its lock, and fails if it has no retries left.

use bytes::Bytes;
use ganger_types::qless::{QlessFailure, QlessState};

use super::history::{self, Limit};
use super::throttles;
use crate::call::Call;
use crate::state::Qless;
use crate::statistics;

/// Returns the failure of a job that has no retries left.
pub(crate) fn exhausted_failure(queue: &Bytes, now: f64) -> QlessFailure {
    QlessFailure {
        group: exhausted_group(queue),
        message: [b"Job exhausted retries in queue \"", &queue[..], b"\""]
            .concat()
            .into(),
        when: now,
        worker: Bytes::new(),
    }
}

/// Returns the name of the failure group for jobs of the queue that have no retries left.
pub(crate) fn exhausted_group(queue: &Bytes) -> Bytes {
    [b"failed-retries-", &queue[..]].concat().into()
}

/// Removes the job from its worker's list and from its queue's sets, and releases its throttles.
pub(crate) fn stop_running(state: &mut Qless, call: &Call<'_>, jid: &Bytes) {
    if let Some(worker) = state.job(jid).map(|job| job.worker.clone()) {
        state.set_worker_entry(jid, &worker, None);
    }
    state.move_to(jid, None);
    throttles::release(state, call, jid);
}

/// Fails a job that is in no set of its queue. Counts it in the queue's statistics of the day.
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
    state.join_failure_group(jid, failure);
    state.edit_statistics(queue, statistics::day(call.now), |it| {
        it.failures = it.failures.saturating_add(1);
        it.failed = it.failed.saturating_add(1);
    });
}

/// Subtracts one failed job from the queue's statistics of the day when it failed.
pub(crate) fn subtract_failed(state: &mut Qless, queue: &Bytes, failed_at: f64) {
    state.edit_statistics(queue, statistics::day(failed_at), |it| {
        it.failed = it.failed.saturating_sub(1);
    });
}

/// Appends to the history that the job failed because it has no retries left.
pub(crate) fn append_exhausted(
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
