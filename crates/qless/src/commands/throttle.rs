//! Commands on throttles, which only the third generation has.

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::{QlessAnswer, QlessRefusal, QlessReply, QlessThrottle};

use crate::call::{Arguments, Call, refuse};
use crate::json::Writer;
use crate::number;
use crate::procedures::throttles;
use crate::state::Qless;

/// Microseconds in a second; the server's time counts microseconds.
const MICROS_PER_SECOND: u64 = 1_000_000;

/// `throttle.set id maximum [expiration]`: sets the maximum of a throttle and returns nil. An expiration above 0 is the
/// lifetime of the maximum, in seconds; 0 or less means no end.
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

/// `throttle.get id`: returns the id and the maximum as JSON.
pub(super) fn get(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    Ok(shown(state, call, id(arguments)?))
}

/// `throttle.delete id`: removes the maximum and returns nil. Jobs that hold the throttle keep it.
pub(super) fn delete(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    state.forget_throttle(id(arguments)?);
    Ok(QlessReply::Nil)
}

/// `throttle.locks id`: returns the jobs that hold the throttle, by jid.
pub(super) fn locks(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let holders = state.holders(id(arguments)?);
    Ok(QlessReply::List(holders.iter().cloned().collect()))
}

/// `throttle.pending id`: returns the jobs that wait for the throttle, by the time when they began to wait.
pub(super) fn pending(
    state: &mut Qless,
    _: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let pending = state.pending(id(arguments)?);
    let jids = pending.iter().map(|(_, jid)| jid.clone());
    Ok(QlessReply::List(jids.collect()))
}

/// `throttle.ttl id`: returns the remaining lifetime of the maximum in seconds; -1 if it has no end, -2 if there is no
/// maximum.
pub(super) fn ttl(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let seconds = match state.throttle(id(arguments)?, call.server) {
        None => -2,
        Some(QlessThrottle { ends_at: None, .. }) => -1,
        Some(QlessThrottle {
            ends_at: Some(end), ..
        }) => {
            // Rounded to the nearest second, as Redis does.
            let left = end.0.saturating_sub(call.server.0);
            let seconds = left.saturating_add(MICROS_PER_SECOND / 2) / MICROS_PER_SECOND;
            i64::try_from(seconds).unwrap_or(i64::MAX)
        }
    };
    Ok(QlessReply::Number(seconds))
}

/// `throttle.release id jid...`: takes the throttle from these jobs, or ends their wait for it, and returns nil.
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

/// `queue.throttle.get queue`: returns the throttle of the queue as JSON.
pub(super) fn queue_get(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let id = throttles::queue_throttle(arguments.queue(0)?);
    Ok(shown(state, call, &id))
}

/// `queue.throttle.set queue maximum`: sets the maximum of the queue's throttle, without an end, and returns nil.
pub(super) fn queue_set(
    state: &mut Qless,
    _: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let id = throttles::queue_throttle(arguments.queue(0)?);
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

/// Returns the time `seconds` after `at`, limited to the range of the server's clock.
fn after(at: Elapsed, seconds: f64) -> Elapsed {
    let micros = number::truncate(seconds * number::from_count(MICROS_PER_SECOND));
    Elapsed(at.0.saturating_add(u64::try_from(micros).unwrap_or(0)))
}
