//! `cancel jid...`: deletes jobs unless they are complete.

use std::collections::BTreeSet;

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessRefusal, QlessReply, QlessState};

use crate::call::{Arguments, Call, refuse};
use crate::events;
use crate::procedures::{ending, retention, throttles};
use crate::state::Qless;

/// Cancels jobs and returns the given jids. If another job depends on one of them, refuses the call, and cancels none.
pub(super) fn cancel(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let jids = arguments.from(0);
    check(state, jids)?;
    for jid in jids {
        cancel_one(state, call, jid);
    }
    Ok(QlessReply::List(jids.to_vec()))
}

fn check(state: &Qless, jids: &[Bytes]) -> Result<(), QlessRefusal> {
    let requested: BTreeSet<&Bytes> = jids.iter().collect();
    for job in jids.iter().filter_map(|jid| state.job(jid)) {
        if let Some(other) = job.dependents.iter().find(|it| !requested.contains(it)) {
            return Err(refuse(&[
                b"Cancel(): ",
                &job.jid,
                b" is a dependency of ",
                other,
                b" but is not mentioned to be canceled",
            ]));
        }
    }
    Ok(())
}

fn cancel_one(state: &mut Qless, call: &mut Call<'_>, jid: &Bytes) {
    let Some(job) = state.job(jid).cloned() else {
        events::canceled(call, jid, None, None);
        events::publish_if_tracked(state, call, "ql:canceled", jid);
        return;
    };
    if job.state == QlessState::Complete {
        return;
    }
    events::canceled(call, jid, Some(&job.queue), Some(&job.worker));
    throttles::stop_waiting(state, jid);
    ending::stop_running(state, call, jid);
    if let (QlessState::Failed, Some(failure)) = (job.state, &job.failure) {
        ending::subtract_failed(state, &job.queue, failure.when);
    }
    events::publish_if_tracked(state, call, "ql:canceled", jid);
    retention::delete_job(state, call, jid);
}
