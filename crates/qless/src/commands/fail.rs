//! `fail jid worker group message [data]`: fails a job at the request of the worker that holds it.

use bytes::Bytes;
use ganger_types::qless::{
    QlessAnswer, QlessFailure, QlessJob, QlessRefusal, QlessReply, QlessState,
};

use crate::call::{Arguments, Call, json_of, refuse};
use crate::events;
use crate::procedures::{ending, history};
use crate::state::Qless;

/// Fails a job without a further retry, and returns its jid.
pub(super) fn fail(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let jid = arguments.job(0)?;
    let worker = arguments.required(1, "Fail(): Arg \"worker\" missing")?;
    let group = arguments.required(2, "Fail(): Arg \"group\" missing")?;
    let message = arguments.required(3, "Fail(): Arg \"message\" missing")?;
    let data = arguments.get(4);
    data.map(json_of).transpose()?;
    let limit = history::limit(state)?;
    let queue = check(state, jid, worker)?.queue.clone();

    events::failed(call, jid, group, message, worker);
    events::publish_if_tracked(state, call, "ql:failed", jid);
    let extra = vec![
        history::text("worker", worker),
        history::text("group", group),
    ];
    let what = Bytes::from_static(b"failed");
    history::append(state, jid, limit, what, call.now, extra);
    ending::stop_running(state, call, jid);
    if let Some(data) = data {
        state.edit(jid, |job| *job.data = data.clone());
    }
    let failure = QlessFailure {
        group: group.clone(),
        message: message.clone(),
        when: call.now.floor(),
        worker: worker.clone(),
    };
    ending::fail(state, call, jid, &queue, failure);
    Ok(QlessReply::Text(jid.clone()))
}

/// Returns the job if it runs and that worker holds it; refuses the call otherwise.
fn check<'a>(state: &'a Qless, jid: &Bytes, worker: &Bytes) -> Result<&'a QlessJob, QlessRefusal> {
    let of_job = |what: &str, name: &[u8]| {
        let parts: [&[u8]; 4] = [b"Fail(): Job ", jid, what.as_bytes(), name];
        Err(refuse(&parts))
    };
    match state.job(jid) {
        None => of_job(" does not exist", b""),
        Some(QlessJob { state, .. }) if *state != QlessState::Running => {
            of_job(" not currently running: ", state.as_str().as_bytes())
        }
        Some(job) if job.worker != worker => of_job(" running with another worker: ", &job.worker),
        Some(job) => Ok(job),
    }
}
