//! Why a job is not running.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ganger_document::view::reason::{Explanation, JobAndState, Reason};

use super::{At, FieldError, job_state, ms};
use crate::v1;

impl From<Explanation> for v1::Explanation {
    fn from(given: Explanation) -> Self {
        Self {
            job: given.job,
            state: i32::from(v1::JobState::from(given.state)),
            queue: given.queue,
            reasons: given.reasons.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Reason> for v1::Reason {
    fn from(reason: Reason) -> Self {
        Self {
            code: reason.code.into_owned(),
            text: reason.text,
            count: reason.count,
            limit: reason.limit,
            at_us: reason.at.map(us),
            lease_left_ms: reason.lease_left.map(ms),
            jobs: reason.jobs.into_iter().map(Into::into).collect(),
            worker: reason.worker,
            attempt: reason.attempt,
            silent_ms: reason.silent_for.map(ms),
            running: reason.running,
            times: reason.times,
            more: reason.more,
            detail: reason.detail,
        }
    }
}

impl From<JobAndState> for v1::JobInState {
    fn from(given: JobAndState) -> Self {
        let state = given.state.map_or(v1::JobState::Unspecified, Into::into);
        Self {
            job: given.job,
            state: i32::from(state),
        }
    }
}

/// Why a job is not running.
///
/// # Errors
/// If a state is unknown, or the state of the job is missing.
pub fn explanation(wire: v1::Explanation) -> Result<Explanation, FieldError> {
    let at = At::top("state");
    let state = job_state(at, wire.state)?;
    Ok(Explanation {
        job: wire.job,
        state: state.ok_or_else(|| FieldError::missing(at, "a job is in a state"))?,
        queue: wire.queue,
        reasons: wire
            .reasons
            .into_iter()
            .enumerate()
            .map(|(index, wire)| reason(At::top("reasons").entry(index), wire))
            .collect::<Result<_, _>>()?,
    })
}

fn reason(at: At<'_>, wire: v1::Reason) -> Result<Reason, FieldError> {
    let jobs = wire.jobs.into_iter().enumerate().map(|(index, wire)| {
        let place = at.field("jobs").entry(index);
        let state = job_state(place.field("state"), wire.state)?;
        let job = wire.job;
        Ok(JobAndState { job, state })
    });
    Ok(Reason {
        code: wire.code.into(),
        text: wire.text,
        count: wire.count,
        more: wire.more,
        jobs: jobs.collect::<Result<_, FieldError>>()?,
        at: wire.at_us.map(calendar),
        attempt: wire.attempt,
        running: wire.running,
        limit: wire.limit,
        silent_for: wire.silent_ms.map(Duration::from_millis),
        times: wire.times,
        worker: wire.worker,
        lease_left: wire.lease_left_ms.map(Duration::from_millis),
        detail: wire.detail,
    })
}

/// Microseconds since the epoch; times before it are the epoch.
pub fn us(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The time at a number of microseconds since the epoch; a time beyond the system's range is the epoch.
pub fn calendar(us: u64) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_micros(us))
        .unwrap_or(UNIX_EPOCH)
}
