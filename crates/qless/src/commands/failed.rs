//! `failed` and `unfail`: list failed jobs by group, and make them ready again.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessReply, QlessState};

use crate::call::{Arguments, Call, limit_of_count, whole};
use crate::dispatch;
use crate::json::Writer;
use crate::pages;
use crate::procedures::history;
use crate::state::Qless;

/// `failed [group] [start] [limit]`: returns the number of failed jobs in each group, or a page of one group, the
/// newest first.
pub(super) fn failed(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let start = arguments.number_or(1, 0.0, "Failed(): Arg \"start\" is not a number: ")?;
    let limit = arguments.number_or(2, 25.0, "Failed(): Arg \"limit\" is not a number: ")?;
    let mut json = Writer::default();
    json.begin();
    if let Some(group) = arguments.get(0) {
        let jobs = state.failed(group);
        let page = pages::by_range(jobs.len(), whole(start)?, whole(limit)?);
        json.key("total").count(jobs.len());
        let newest_first = jobs.iter().rev().skip(page.start).take(page.len());
        json.key("jobs").strings(newest_first.map(|(_, jid)| jid));
    } else {
        for (group, count) in state.failure_groups() {
            json.key(group).count(count);
        }
    }
    json.end();
    Ok(QlessReply::Text(json.finish().into()))
}

/// `unfail queue group [count]`: moves the oldest jobs of a group to a queue, 25 by default, and returns their number.
/// Publishes no messages.
pub(super) fn unfail(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let queue = arguments.queue(0)?;
    let group = arguments.required(1, "Unfail(): Arg \"group\" missing")?;
    let count = arguments.number_or(2, 25.0, "Unfail(): Arg \"count\" not a number: ")?;
    let count = limit_of_count(whole(count)?);
    let limit = history::limit(state)?;

    let oldest = state.failed(group).iter().take(count);
    let jids: Vec<Bytes> = oldest.map(|(_, jid)| jid.clone()).collect();
    for jid in &jids {
        history::put(state, jid, limit, queue, call.now);
        state.leave_failure_group(jid);
        state.edit(jid, |job| {
            *job.state = QlessState::Waiting;
            *job.worker = Bytes::new();
            *job.expires = 0.0;
            *job.queue = queue.clone();
            *job.remaining = *job.retries;
        });
        state.make_ready(jid, queue, call.at());
    }
    Ok(dispatch::count_reply(jids.len()))
}
