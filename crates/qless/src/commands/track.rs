//! `track`: tracks jobs. Subscribers get messages about every step of a tracked job.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessReply};

use crate::call::{Arguments, Call, refuse};
use crate::json::Writer;
use crate::state::Qless;
use crate::view;

/// `track` returns the tracked jobs. `track track jid` and `track untrack jid` start and stop tracking, and return
/// whether that changed the list: 1 or 0. Tracking outlives the job, but starts and stops only while the job exists.
pub(super) fn track(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let Some(command) = arguments.get(0) else {
        return Ok(list(state, call));
    };
    let jid = arguments.required(1, "Track(): Arg \"jid\" missing")?;
    if state.job(jid).is_none() {
        return Err(refuse(&[b"Track(): Job does not exist"]));
    }
    let begins = match &command.to_ascii_lowercase()[..] {
        b"track" => true,
        b"untrack" => false,
        _ => return Err(refuse(&[b"Track(): Unknown action \"", command, b"\""])),
    };

    let changes = state.is_tracked(jid) != begins;
    if begins {
        call.publish("ql:track", jid.clone());
        state.set_tracked(jid, Some(call.at()));
    } else {
        call.publish("ql:untrack", jid.clone());
        state.set_tracked(jid, None);
    }
    let answer = if changes { "1" } else { "0" };
    Ok(QlessReply::Text(Bytes::from_static(answer.as_bytes())))
}

/// Returns the tracked jobs, and the tracked jids without a job, both by the time when tracking began.
fn list(state: &Qless, call: &Call<'_>) -> QlessReply {
    let tracked = || state.tracked().iter().map(|(_, jid)| jid);
    let mut out = Writer::default();
    out.begin();
    let jobs = tracked().filter_map(|jid| state.job(jid));
    out.key("jobs").list(jobs, |out, job| {
        view::job(out, state, call.generation, job);
    });
    let expired = tracked().filter(|jid| state.job(jid).is_none());
    out.key("expired").strings(expired);
    out.end();
    out.into()
}
