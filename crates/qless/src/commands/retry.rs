//! `retry jid queue worker [delay] [group] [message]`: a worker gives a job back, which costs a retry.

use bytes::Bytes;
use ganger_types::qless::{
    QlessAnswer, QlessFailure, QlessJob, QlessRefusal, QlessReply, QlessSet, QlessState,
};

use crate::call::{Arguments, Call, refuse};
use crate::events;
use crate::number;
use crate::procedures::history::{self, Limit};
use crate::procedures::{ending, links};
use crate::state::Qless;

/// The checked arguments of a retry.
struct RetryRequest<'a> {
    /// The id of the job.
    jid: &'a Bytes,
    /// The queue that the job goes back to.
    queue: &'a Bytes,
    /// Seconds until the job may run; at 0 or less it may run now.
    delay: f64,
    /// Failure group from the caller, if there is one.
    group: Option<&'a Bytes>,
    /// Failure from the caller; `None` unless it gave both group and message.
    failure: Option<QlessFailure>,
    /// Maximum number of entries of the job's history.
    history: Limit,
}

/// Gives a job back and returns the number of retries left; -1 if it had none, and has failed.
pub(super) fn retry(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let jid = arguments.job(0)?;
    let queue = arguments.required(1, "Retry(): Arg \"queue\" missing")?;
    let worker = arguments.required(2, "Retry(): Arg \"worker\" missing")?;
    let delay = arguments.number_or(3, 0.0, "Retry(): Arg \"delay\" not a number: ")?;
    let (group, message) = (arguments.get(4), arguments.get(5));
    let failure = group.zip(message).map(|(group, message)| QlessFailure {
        group: group.clone(),
        message: message.clone(),
        when: call.now.floor(),
        worker: worker.clone(),
    });
    let history = history::limit(state)?;
    let remaining = check(state, jid, worker)?.remaining - 1.0;

    state.edit(jid, |job| {
        *job.remaining = remaining;
        *job.is_warned = false;
    });
    ending::stop_running(state, call, jid);
    let retry = RetryRequest {
        jid,
        queue,
        delay,
        group,
        failure,
        history,
    };
    if remaining >= 0.0 {
        place_in_queue(state, call, retry);
    } else {
        fail_exhausted(state, call, retry);
    }
    Ok(QlessReply::Number(number::truncate(remaining.floor())))
}

/// Returns the job if it runs and that worker holds it; refuses the call otherwise.
fn check<'a>(state: &'a Qless, jid: &Bytes, worker: &Bytes) -> Result<&'a QlessJob, QlessRefusal> {
    let of_job = |what: &str, name: &[u8]| {
        let parts: [&[u8]; 4] = [b"Retry(): Job ", jid, what.as_bytes(), name];
        Err(refuse(&parts))
    };
    match state.job(jid) {
        None => of_job(" does not exist", b""),
        Some(QlessJob { state, .. }) if *state != QlessState::Running => {
            of_job(" is not currently running: ", state.as_str().as_bytes())
        }
        Some(job) if job.worker != worker => {
            of_job(" has been given to another worker: ", &job.worker)
        }
        Some(job) => Ok(job),
    }
}

/// Moves the job into the named queue, scheduled or ready. Its record still shows the worker and the end of the lock.
fn place_in_queue(state: &mut Qless, call: &Call<'_>, retry: RetryRequest<'_>) {
    let RetryRequest { jid, queue, .. } = retry;
    state.edit(jid, |job| *job.queue = queue.clone());
    if retry.delay > 0.0 {
        state.move_to_set(jid, queue, QlessSet::Scheduled, call.after(retry.delay));
        state.edit(jid, |job| *job.state = QlessState::Scheduled);
    } else {
        links::make_ready(state, jid, queue, call.at());
    }
    if let Some(failure) = retry.failure {
        state.set_failure(jid, Some(failure));
    }
}

/// Fails the job, which has no retries left. Publishes only on the channel of tracked jobs.
fn fail_exhausted(state: &mut Qless, call: &mut Call<'_>, retry: RetryRequest<'_>) {
    let RetryRequest { jid, queue, .. } = retry;
    let failure = retry.failure.unwrap_or_else(|| {
        let mut failure = ending::exhausted_failure(queue, call.now);
        if let Some(group) = retry.group {
            failure.group.clone_from(group);
        }
        failure
    });
    ending::append_exhausted(state, call, jid, &failure.group, retry.history);
    events::publish_if_tracked(state, call, "ql:failed", jid);
    ending::fail(state, call, jid, queue, failure);
}
