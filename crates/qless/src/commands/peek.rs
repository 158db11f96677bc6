//! `peek queue count`: what a pop would give next, without giving it. What is due by the caller's time becomes ready all
//! the same.

use bytes::Bytes;
use ganger_types::qless::QlessAnswer;

use super::get;
use crate::call::{Arguments, Call, at_most, whole};
use crate::procedures::expiry::overdue;
use crate::procedures::history;
use crate::procedures::promotion::promote;
use crate::procedures::spawning::spawn;
use crate::state::Qless;

/// The jobs. The third generation says `peek queue offset count`, and skips so many; its first script, of
/// qless-with-throttles, says `peek queue count` as the others do.
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

    let (offset, count) = (at_most(offset), at_most(count));
    let end = match count {
        0 => 0,
        _ => offset.saturating_add(count),
    };
    let mut jids: Vec<Bytes> = overdue(state, call, queue, end);
    spawn(state, call, queue, end - jids.len(), history);
    // A child may have taken the place of an older job of its name.
    jids.retain(|jid| state.is_held(jid));
    promote(state, queue, call.at(), end - jids.len());
    let ready = state.work(queue).take(end - jids.len()).cloned();
    jids.extend(ready);
    Ok(get::jobs(state, call, jids.get(offset..).unwrap_or(&[])))
}
