//! Options, read as numbers where they are used.

use bytes::Bytes;
use ganger_types::qless::QlessRefusal;

use crate::call::refuse;
use crate::number;
use crate::state::Qless;

/// Seconds for which a lock is given, unless an option says otherwise.
pub(crate) const HEARTBEAT: f64 = 60.0;
/// Seconds that a holder gets after the warning that its lock ran out.
pub(crate) const GRACE: f64 = 10.0;
/// Seconds for which completed jobs are kept.
pub(crate) const JOBS_HISTORY: f64 = 604_800.0;
/// How many completed jobs are kept.
pub(crate) const JOBS_HISTORY_COUNT: f64 = 50_000.0;
/// Entries of a job's history that are kept.
pub(crate) const JOB_HISTORY_MAX: f64 = 100.0;
/// How often a pop looks for jobs that no throttle holds up.
pub(crate) const POP_RETRY_MAX: f64 = 1.0;

/// An option's value as a number, if it was set.
fn given(state: &Qless, option: &[u8]) -> Result<Option<f64>, QlessRefusal> {
    let Some(value) = state.setting(option) else {
        return Ok(None);
    };
    match number::parse(value) {
        Some(number) => Ok(Some(number)),
        None => Err(refuse(&[
            b"config: option \"",
            option,
            b"\" is not a number: ",
            value,
        ])),
    }
}

/// An option's value as a number.
pub(crate) fn number_of(state: &Qless, option: &str, default: f64) -> Result<f64, QlessRefusal> {
    Ok(given(state, option.as_bytes())?.unwrap_or(default))
}

/// The value of a queue's own option, `<queue>-<option>`.
fn of_queue(state: &Qless, queue: &Bytes, option: &str) -> Result<Option<f64>, QlessRefusal> {
    given(state, &[&queue[..], b"-", option.as_bytes()].concat())
}

/// Seconds for which a lock of the queue is given. Negative ones run out at once.
pub(crate) fn heartbeat(state: &Qless, queue: &Bytes) -> Result<f64, QlessRefusal> {
    match of_queue(state, queue, "heartbeat")? {
        Some(seconds) => Ok(seconds),
        None => number_of(state, "heartbeat", HEARTBEAT),
    }
}

/// How many jobs of the queue may be held at a time; 0 or less: any number.
pub(crate) fn max_concurrency(state: &Qless, queue: &Bytes) -> Result<f64, QlessRefusal> {
    Ok(of_queue(state, queue, "max-concurrency")?.unwrap_or(0.0))
}

/// How often a pop of the queue looks for jobs that no throttle holds up.
pub(crate) fn max_pop_retry(state: &Qless, queue: &Bytes) -> Result<f64, QlessRefusal> {
    match of_queue(state, queue, "max-pop-retry")? {
        Some(times) => Ok(times),
        None => number_of(state, "max-pop-retry", POP_RETRY_MAX),
    }
}
