//! Commands about throttles, which only the third generation has.

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::{QlessAnswer, QlessRefusal, QlessReply, QlessThrottle};

use crate::call::{Arguments, Call, refuse};
use crate::json::Writer;
use crate::number;
use crate::procedures::throttles;
use crate::state::Qless;

/// Microseconds in a second, in which the server counts.
const MICROS_PER_SECOND: u64 = 1_000_000;

/// `throttle.set id maximum [expiration]`: nil. An expiration above 0 is the life of the maximum, in seconds.
pub(super) fn set(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let id = id(arguments)?;
    let maximum = arguments.number(1, "Throttle(): Arg \"maximum\" not a number: ")?;
    let expiration =
        arguments.number_or(2, 0.0, "Throttle(): Arg \"expiration\" not a number: ")?;
    state.set_throttle(QlessThrottle {
        id: id.clone(),
        maximum,
        ends_at: (expiration > 0.0).then(|| after(call.server, expiration)),
    });
    Ok(QlessReply::Nil)
}

/// `throttle.get id`: JSON of the id and the maximum.
pub(super) fn get(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    Ok(shown(state, call, id(arguments)?))
}

/// `throttle.delete id`: nil. Forgets the maximum; who holds the throttle holds it still.
pub(super) fn delete(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    state.forget_throttle(id(arguments)?);
    Ok(QlessReply::Nil)
}

/// `throttle.locks id`: the jobs that hold it.
pub(super) fn locks(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let holders = state.holders(id(arguments)?);
    Ok(QlessReply::List(holders.iter().cloned().collect()))
}

/// `throttle.pending id`: the jobs that wait for it, by when they began to.
pub(super) fn pending(
    state: &mut Qless,
    _: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let pending = state.pending(id(arguments)?);
    let jids = pending.iter().map(|(_, jid)| jid.clone());
    Ok(QlessReply::List(jids.collect()))
}

/// `throttle.ttl id`: the seconds that its maximum has to live; -1 if it has no end, -2 if there is none.
pub(super) fn ttl(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let seconds = match state.throttle(id(arguments)?, call.server) {
        None => -2,
        Some(QlessThrottle { ends_at: None, .. }) => -1,
        Some(QlessThrottle {
            ends_at: Some(end), ..
        }) => {
            // As the server of the script: to the nearest second.
            let left = end.0.saturating_sub(call.server.0);
            let seconds = left.saturating_add(MICROS_PER_SECOND / 2) / MICROS_PER_SECOND;
            i64::try_from(seconds).unwrap_or(i64::MAX)
        }
    };
    Ok(QlessReply::Number(seconds))
}

/// `throttle.release id jid...`: nil. Takes the throttle from these jobs, or lets them wait for it no longer.
pub(super) fn release(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let id = id(arguments)?;
    for jid in arguments.from(1) {
        throttles::release_one(state, call, jid, id);
    }
    Ok(QlessReply::Nil)
}

/// `queue.throttle.get queue`: the queue's own throttle.
pub(super) fn queue_get(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let id = throttles::of_queue(arguments.queue(0)?);
    Ok(shown(state, call, &id))
}

/// `queue.throttle.set queue maximum`: nil.
pub(super) fn queue_set(
    state: &mut Qless,
    _: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let id = throttles::of_queue(arguments.queue(0)?);
    let maximum = arguments.number(1, "Throttle(): Arg \"maximum\" not a number: ")?;
    state.set_throttle(QlessThrottle {
        id,
        maximum,
        ends_at: None,
    });
    Ok(QlessReply::Nil)
}

fn id(arguments: Arguments<'_>) -> Result<&Bytes, QlessRefusal> {
    match arguments.get(0) {
        Some(id) => Ok(id),
        None => Err(refuse(&[b"Throttle(): no tid provided"])),
    }
}

fn shown(state: &Qless, call: &Call<'_>, id: &Bytes) -> QlessReply {
    let mut json = Writer::default();
    json.begin();
    json.key("id").string(id);
    let maximum = throttles::maximum(state, id, call.server);
    json.key("maximum").number(maximum);
    json.end();
    QlessReply::Text(json.finish().into())
}

/// So many seconds later, cut to what the server's clock can say.
fn after(at: Elapsed, seconds: f64) -> Elapsed {
    let micros = number::cut(seconds * number::from_count(MICROS_PER_SECOND));
    Elapsed(at.0.saturating_add(u64::try_from(micros).unwrap_or(0)))
}
