//! `queues`, `length`, `pause`, `unpause`, `queue.forget`, `stats`: counts, pauses and statistics of queues.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessRefusal, QlessReply, QlessSet, QlessTime};

use crate::call::{Arguments, Call, refuse};
use crate::dispatch;
use crate::json::Writer;
use crate::procedures::promotion::promote;
use crate::state::{Qless, between};
use crate::statistics;

/// `queues [queue]`: returns the number of jobs in each set of the queue, or of all known queues. Scheduled jobs that
/// are due become ready before that. A query does not make a queue known.
#[expect(
    clippy::unnecessary_wraps,
    reason = "commands are alike, whether or not they may refuse"
)]
pub(super) fn queues(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let mut out = Writer::default();
    if let Some(queue) = arguments.get(0) {
        write_counts(state, call, queue, &mut out);
    } else {
        let known: Vec<Bytes> = (state.known_queues().iter())
            .map(|(_, queue)| queue.clone())
            .collect();
        out.list(&known, |out, queue| write_counts(state, call, queue, out));
    }
    Ok(out.into())
}

fn write_counts(state: &mut Qless, call: &Call<'_>, queue: &Bytes, out: &mut Writer) {
    promote(state, queue, call.at(), usize::MAX);
    let locks = state.time_index(queue, QlessSet::Locks);
    let stalled = between(locks, QlessTime::default(), call.at()).count();
    out.begin();
    out.key("name").string(queue);
    out.key("waiting").count(state.size(queue, QlessSet::Work));
    out.key("stalled").count(stalled);
    out.key("running").count(locks.len() - stalled);
    out.key("scheduled")
        .count(state.size(queue, QlessSet::Scheduled));
    out.key("depends")
        .count(state.size(queue, QlessSet::Depends));
    out.key("recurring")
        .count(state.size(queue, QlessSet::Recur));
    if call.has_throttles() {
        out.key("throttled")
            .count(state.size(queue, QlessSet::Throttled));
    }
    out.key("paused").boolean(state.is_paused(queue));
    out.end();
}

/// `length queue`: returns the number of jobs that are locked, ready or scheduled.
pub(super) fn length(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let queue = arguments.queue(0)?;
    let sets = [QlessSet::Locks, QlessSet::Work, QlessSet::Scheduled];
    let length = sets.map(|set| state.size(queue, set)).iter().sum();
    Ok(dispatch::count_reply(length))
}

/// `pause queue..`: pauses queues.
pub(super) fn pause(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    for queue in at_least_one(arguments, "Pause(): No queues specified")? {
        state.set_paused(queue, true);
    }
    Ok(QlessReply::Nil)
}

/// `unpause queue..`: ends the pause of queues.
pub(super) fn unpause(
    state: &mut Qless,
    _: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    for queue in at_least_one(arguments, "Unpause(): No queues specified")? {
        state.set_paused(queue, false);
    }
    Ok(QlessReply::Nil)
}

/// `queue.forget queue..`: makes queues unknown. Their jobs and pauses stay.
pub(super) fn forget(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    for queue in at_least_one(arguments, "QueueForget(): No queues specified")? {
        state.forget_queue(queue);
    }
    Ok(QlessReply::Nil)
}

/// `stats queue date`: returns the statistics of the day that contains `date`, in seconds since the epoch.
pub(super) fn stats(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let queue = arguments.queue(0)?;
    let date = arguments.number(1, "Stats(): Arg \"date\" missing or not a number: ")?;
    let mut out = Writer::default();
    statistics::write(&mut out, state.statistics(queue, statistics::day(date)));
    Ok(out.into())
}

/// Returns all arguments; refuses the call with the text `otherwise` if there are none.
pub(super) fn at_least_one<'a>(
    arguments: Arguments<'a>,
    otherwise: &str,
) -> Result<&'a [Bytes], QlessRefusal> {
    match arguments.from(0) {
        [] => Err(refuse(&[otherwise.as_bytes()])),
        names => Ok(names),
    }
}
