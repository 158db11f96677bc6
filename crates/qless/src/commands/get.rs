//! `get jid` and `multiget jid...`: return jobs as JSON.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessReply};

use crate::call::{Arguments, Call};
use crate::json::Writer;
use crate::state::Qless;
use crate::view;

/// `get jid`: returns the job; nil if it does not exist.
pub(super) fn get(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let jid = arguments.job(0)?;
    let Some(job) = state.job(jid) else {
        return Ok(QlessReply::Nil);
    };
    let mut json = Writer::with_capacity(view::json_bytes_estimate(job));
    view::job(&mut json, state, call.generation, job);
    Ok(QlessReply::Text(json.finish().into()))
}

/// `multiget jid...`: returns the jobs that exist, in the order of the jids; a repeated jid appears twice.
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

/// Returns the list of the jobs that exist, as JSON.
pub(super) fn jobs(state: &Qless, call: &Call<'_>, jids: &[Bytes]) -> QlessReply {
    let jobs = jids.iter().filter_map(|jid| state.job(jid));
    let bytes = jobs.clone().map(view::json_bytes_estimate).sum();
    let mut json = Writer::with_capacity(bytes);
    json.list(jobs, |json, job| {
        view::job(json, state, call.generation, job);
    });
    QlessReply::Text(json.finish().into())
}
