//! `peek queue count`: shows the jobs that a pop would return next, without locking them. Jobs that are due by the
//! caller's time become ready all the same.

use bytes::Bytes;
use ganger_types::qless::QlessAnswer;

use super::get;
use crate::call::{Arguments, Call, limit_of_count, whole};
use crate::procedures::expiry::expired_locks;
use crate::procedures::history;
use crate::procedures::promotion::promote;
use crate::procedures::spawning::spawn;
use crate::state::Qless;

/// Returns the jobs as JSON. Calls of the third generation are `peek queue offset count` and skip `offset` jobs; its
/// first script, of qless-with-throttles, has `peek queue count` like the others.
pub(super) fn peek(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let queue = arguments.queue(0)?;
    let (offset, next) = if call.has_throttles() && arguments.get(2).is_some() {
        let complaint = "Peek(): Arg \"offset\" missing or not a number: ";
        (whole(arguments.number(1, complaint)?)?, 2)
    } else {
        (0, 1)
    };
    let complaint = "Peek(): Arg \"count\" missing or not a number: ";
    let count = whole(arguments.number(next, complaint)?)?;
    let history = history::limit(state)?;

    let (offset, count) = (limit_of_count(offset), limit_of_count(count));
    let end = match count {
        0 => 0,
        _ => offset.saturating_add(count),
    };
    let mut jids: Vec<Bytes> = expired_locks(state, call, queue, end);
    spawn(state, call, queue, end - jids.len(), history);
    // A new child may have replaced an older job of the same jid.
    jids.retain(|jid| state.is_locked(jid));
    promote(state, queue, call.at(), end - jids.len());
    let ready = state.work(queue).take(end - jids.len()).cloned();
    jids.extend(ready);
    Ok(get::jobs(state, call, jids.get(offset..).unwrap_or(&[])))
}
