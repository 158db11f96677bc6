//! Options that clients set. They are texts; the command that uses an option reads it as a number and refuses the call
//! if it is none.

use bytes::Bytes;
use ganger_types::qless::QlessRefusal;

use crate::call::refuse;
use crate::number;
use crate::state::Qless;

/// Default length of a lock, in seconds: the option `heartbeat`.
pub(crate) const HEARTBEAT: f64 = 60.0;
/// Default grace period after the warning that a lock has expired, in seconds: the option `grace-period`.
pub(crate) const GRACE: f64 = 10.0;
/// Default time for which completed jobs are kept, in seconds (7 days): the option `jobs-history`.
pub(crate) const JOBS_HISTORY: f64 = 604_800.0;
/// Default number of completed jobs that are kept: the option `jobs-history-count`.
pub(crate) const JOBS_HISTORY_COUNT: f64 = 50_000.0;
/// Default number of entries of a job's history: the option `max-job-history`.
pub(crate) const JOB_HISTORY_MAX: f64 = 100.0;
/// Default number of rounds in which a pop looks for jobs that no throttle blocks: the option `max-pop-retry`.
pub(crate) const POP_RETRY_MAX: f64 = 1.0;

/// Returns the value of an option as a number; `None` if it was not set.
fn option_number(state: &Qless, option: &[u8]) -> Result<Option<f64>, QlessRefusal> {
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

/// Returns the value of an option as a number, or `default` if it was not set.
pub(crate) fn number_of(state: &Qless, option: &str, default: f64) -> Result<f64, QlessRefusal> {
    Ok(option_number(state, option.as_bytes())?.unwrap_or(default))
}

/// Returns the value of a queue's own option, `<queue>-<option>`; `None` if it was not set.
fn queue_option_number(
    state: &Qless,
    queue: &Bytes,
    option: &str,
) -> Result<Option<f64>, QlessRefusal> {
    option_number(state, &[&queue[..], b"-", option.as_bytes()].concat())
}

/// Returns the length of the queue's locks in seconds. A lock with a negative length has expired at once.
pub(crate) fn heartbeat(state: &Qless, queue: &Bytes) -> Result<f64, QlessRefusal> {
    match queue_option_number(state, queue, "heartbeat")? {
        Some(seconds) => Ok(seconds),
        None => number_of(state, "heartbeat", HEARTBEAT),
    }
}

/// Returns the number of jobs of the queue that may be locked at a time; 0 or less means no limit.
pub(crate) fn max_concurrency(state: &Qless, queue: &Bytes) -> Result<f64, QlessRefusal> {
    Ok(queue_option_number(state, queue, "max-concurrency")?.unwrap_or(0.0))
}

/// Returns the number of rounds in which a pop of the queue looks for jobs that no throttle blocks.
pub(crate) fn max_pop_retry(state: &Qless, queue: &Bytes) -> Result<f64, QlessRefusal> {
    match queue_option_number(state, queue, "max-pop-retry")? {
        Some(times) => Ok(times),
        None => number_of(state, "max-pop-retry", POP_RETRY_MAX),
    }
}
