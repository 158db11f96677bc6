//! `depends jid on|off [jid...]`: adds or removes dependencies of a job that waits for other jobs.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessReply, QlessState};

use crate::call::{Arguments, Call, refuse};
use crate::procedures::links;
use crate::state::Qless;

/// Changes the dependencies of a job and returns 1.
pub(super) fn depends(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let jid = arguments.job(0)?;
    let command = arguments.required(1, "Depends(): Arg \"command\" missing")?;
    let job_state = state.job(jid).map(|job| job.state);
    if job_state != Some(QlessState::Depends) {
        let job_state = job_state.map_or("false", QlessState::as_str);
        return Err(refuse(&[
            b"Depends(): Job ",
            jid,
            b" not in the depends state: ",
            job_state.as_bytes(),
        ]));
    }
    let others = arguments.from(2);
    match &command[..] {
        b"on" => links::link(state, jid, others),
        b"off" => remove_dependencies(state, call, jid, others),
        _ => {
            return Err(refuse(&[
                b"Depends(): Argument \"command\" must be \"on\" or \"off\"",
            ]));
        }
    }
    Ok(QlessReply::Number(1))
}

/// Removes dependencies of the job; `all` removes every one. A job without further dependencies becomes ready, even if
/// it was to be scheduled.
fn remove_dependencies(state: &mut Qless, call: &Call<'_>, jid: &Bytes, others: &[Bytes]) {
    if others.first().is_some_and(|it| it == "all") {
        state.unlink_all(jid);
    }
    for on in others {
        state.unlink(jid, on);
    }
    if !links::is_waiting(state, jid)
        && let Some(queue) = state.job(jid).map(|job| job.queue.clone())
    {
        links::make_ready(state, jid, &queue, call.at());
    }
}
