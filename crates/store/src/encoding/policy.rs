//! Retry policies, failure policies, due times: parts of several records.

use ganger_types::{Backoff, Due, Elapsed, FailurePolicy, Outcome, RetryPolicy, Timestamp};

use super::{Cursor, DecodeError, Writer};

pub(super) fn write_retry(out: &mut Writer<'_>, retry: &RetryPolicy) {
    out.number(u64::from(retry.retries_max));
    out.byte(retry.jitter_percent);
    match &retry.backoff {
        Backoff::Fixed(pause) => {
            out.byte(1);
            out.duration(*pause);
        }
        Backoff::List(pauses) => {
            out.byte(2);
            out.length(pauses.len());
            for pause in pauses {
                out.duration(*pause);
            }
        }
        Backoff::Exponential { base, cap } => {
            out.byte(3);
            out.duration(*base);
            out.duration(*cap);
        }
    }
}

pub(super) fn read_retry(from: &mut Cursor<'_>) -> Result<RetryPolicy, DecodeError> {
    let retries_max = from.small()?;
    let jitter_percent = from.byte()?;
    let backoff = match from.byte()? {
        1 => Backoff::Fixed(from.duration()?),
        2 => Backoff::List(from.list(Cursor::duration)?),
        3 => Backoff::Exponential {
            base: from.duration()?,
            cap: from.duration()?,
        },
        _ => return Err(from.error("has an unknown kind of backoff")),
    };
    Ok(RetryPolicy {
        retries_max,
        backoff,
        jitter_percent,
    })
}

pub(super) fn write_policy(out: &mut Writer<'_>, policy: FailurePolicy) {
    out.byte(match policy {
        FailurePolicy::Fail => 1,
        FailurePolicy::Wait => 2,
        FailurePolicy::Ignore => 3,
    });
}

pub(super) fn read_policy(from: &mut Cursor<'_>) -> Result<FailurePolicy, DecodeError> {
    match from.byte()? {
        1 => Ok(FailurePolicy::Fail),
        2 => Ok(FailurePolicy::Wait),
        3 => Ok(FailurePolicy::Ignore),
        _ => Err(from.error("has an unknown failure policy")),
    }
}

pub(super) fn write_outcome(out: &mut Writer<'_>, outcome: Outcome) {
    out.byte(outcome.state().number());
}

pub(super) fn read_outcome(from: &mut Cursor<'_>) -> Result<Outcome, DecodeError> {
    match from.byte()? {
        5 => Ok(Outcome::Succeeded),
        6 => Ok(Outcome::Failed),
        7 => Ok(Outcome::Cancelled),
        _ => Err(from.error("has an unknown outcome")),
    }
}

pub(super) fn write_due(out: &mut Writer<'_>, due: Due) {
    match due {
        Due::Elapsed(at) => {
            out.byte(1);
            out.number(at.0);
        }
        Due::Wall(at) => {
            out.byte(2);
            out.number(at.0);
        }
    }
}

pub(super) fn read_due(from: &mut Cursor<'_>) -> Result<Due, DecodeError> {
    match from.byte()? {
        1 => Ok(Due::Elapsed(Elapsed(from.number()?))),
        2 => Ok(Due::Wall(Timestamp(from.number()?))),
        _ => Err(from.error("has an unknown kind of due time")),
    }
}
