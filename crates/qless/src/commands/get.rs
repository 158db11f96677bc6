//! `get jid` and `multiget jid...`: jobs as JSON.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessReply};

use crate::call::{Arguments, Call};
use crate::json::Writer;
use crate::state::Qless;
use crate::view;

/// The job, or nil.
pub(super) fn get(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let jid = arguments.job(0)?;
    let Some(job) = state.job(jid) else {
        return Ok(QlessReply::Nil);
    };
    let mut json = Writer::with_room(view::room(job));
    view::job(&mut json, state, call.generation, job);
    Ok(QlessReply::Text(json.finish().into()))
}

/// The jobs that exist, in the order asked for; one that is asked for twice comes twice.
#[expect(
    clippy::unnecessary_wraps,
    reason = "commands are alike, whether or not they may refuse"
)]
pub(super) fn multiget(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    Ok(jobs(state, call, arguments.from(0)))
}

/// A list of those jobs that exist, in full.
pub(super) fn jobs(state: &Qless, call: &Call<'_>, jids: &[Bytes]) -> QlessReply {
    let jobs = jids.iter().filter_map(|jid| state.job(jid));
    let room = jobs.clone().map(view::room).sum();
    let mut json = Writer::with_room(room);
    json.list(jobs, |json, job| {
        view::job(json, state, call.generation, job);
    });
    QlessReply::Text(json.finish().into())
}
