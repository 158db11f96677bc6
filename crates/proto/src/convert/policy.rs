//! States and policies of jobs and schedules.

use std::time::Duration;

use ganger_types::{
    Backoff, CatchUp, FailurePolicy, JobState, Overlap, Progress, RetryPolicy, limits,
};

use super::{At, FieldError, at_most, bounded, ms};
use crate::v1;

/// Pauses that a retry policy may list.
const PAUSES_MAX: usize = 1_000;

impl From<JobState> for v1::JobState {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Blocked => Self::Blocked,
            JobState::Scheduled => Self::Scheduled,
            JobState::Ready => Self::Ready,
            JobState::Running => Self::Running,
            JobState::Succeeded => Self::Succeeded,
            JobState::Failed => Self::Failed,
            JobState::Cancelled => Self::Cancelled,
        }
    }
}

/// The state that a number of the schema stands for; `None` for 0, "not said".
///
/// # Errors
/// If the schema has no such state.
pub fn job_state(at: At<'_>, wire: i32) -> Result<Option<JobState>, FieldError> {
    if wire == 0 {
        return Ok(None);
    }
    let number = u8::try_from(wire).ok();
    let state = number.and_then(JobState::from_number);
    state
        .map(Some)
        .ok_or_else(|| FieldError::invalid(at, format_args!("{wire} is not a job state")))
}

impl From<FailurePolicy> for v1::FailurePolicy {
    fn from(policy: FailurePolicy) -> Self {
        match policy {
            FailurePolicy::Fail => Self::Fail,
            FailurePolicy::Wait => Self::Wait,
            FailurePolicy::Ignore => Self::Ignore,
        }
    }
}

/// The failure policy that a number of the schema stands for; [`FailurePolicy::Fail`] for 0, "not said".
///
/// # Errors
/// If the schema has no such policy.
pub fn failure_policy(at: At<'_>, wire: i32) -> Result<FailurePolicy, FieldError> {
    match v1::FailurePolicy::try_from(wire) {
        Ok(v1::FailurePolicy::Unspecified | v1::FailurePolicy::Fail) => Ok(FailurePolicy::Fail),
        Ok(v1::FailurePolicy::Wait) => Ok(FailurePolicy::Wait),
        Ok(v1::FailurePolicy::Ignore) => Ok(FailurePolicy::Ignore),
        Err(_) => Err(FieldError::invalid(
            at,
            format_args!("{wire} is not a failure policy"),
        )),
    }
}

impl From<&RetryPolicy> for v1::RetryPolicy {
    fn from(retry: &RetryPolicy) -> Self {
        use v1::backoff::Rule;
        let rule = match &retry.backoff {
            Backoff::Fixed(pause) => Rule::FixedMs(ms(*pause)),
            Backoff::List(pauses) => Rule::List(v1::BackoffList {
                pauses_ms: pauses.iter().copied().map(ms).collect(),
            }),
            Backoff::Exponential { base, cap } => Rule::Exponential(v1::BackoffExponential {
                base_ms: ms(*base),
                cap_ms: ms(*cap),
            }),
        };
        Self {
            retries_max: Some(retry.retries_max),
            backoff: Some(v1::Backoff { rule: Some(rule) }),
            jitter_percent: u32::from(retry.jitter_percent),
            lease_expirations_max: retry.lease_expirations_max,
        }
    }
}

/// A retry policy; fields that are absent are as by default.
///
/// # Errors
/// If a number is out of its range or a list of pauses is empty or too long.
pub fn retry(at: At<'_>, wire: &v1::RetryPolicy) -> Result<RetryPolicy, FieldError> {
    let default = RetryPolicy::default();
    let jitter = at.field("jitter_percent");
    let jitter_percent = u8::try_from(wire.jitter_percent)
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| {
            FieldError::invalid(
                jitter,
                format_args!("{} is out of range: 0 to 100", wire.jitter_percent),
            )
        })?;
    let retries_max = wire.retries_max.unwrap_or(default.retries_max);
    at_most_retries(at.field("retries_max"), retries_max)?;
    if let Some(expirations) = wire.lease_expirations_max {
        at_most_retries(at.field("lease_expirations_max"), expirations)?;
    }
    let rule = wire
        .backoff
        .as_ref()
        .and_then(|backoff| backoff.rule.as_ref());
    let backoff = rule.map_or(Ok(default.backoff), |rule| {
        backoff(at.field("backoff"), rule)
    })?;
    Ok(RetryPolicy {
        retries_max,
        backoff,
        jitter_percent,
        lease_expirations_max: wire.lease_expirations_max,
    })
}

fn at_most_retries(at: At<'_>, given: u32) -> Result<(), FieldError> {
    let most = limits::RETRIES_MAX;
    if given > most {
        let reason = format_args!("{given} is out of range: 0 to {most}");
        return Err(FieldError::invalid(at, reason));
    }
    Ok(())
}

fn backoff(at: At<'_>, rule: &v1::backoff::Rule) -> Result<Backoff, FieldError> {
    use v1::backoff::Rule;
    match rule {
        Rule::FixedMs(pause) => Ok(Backoff::Fixed(Duration::from_millis(*pause))),
        Rule::Exponential(rule) => Ok(Backoff::Exponential {
            base: Duration::from_millis(rule.base_ms),
            cap: Duration::from_millis(rule.cap_ms),
        }),
        Rule::List(list) => {
            let at = at.field("list");
            let at = at.field("pauses_ms");
            if list.pauses_ms.is_empty() {
                return Err(FieldError::missing(at, "give at least one pause"));
            }
            at_most(at, list.pauses_ms.len(), PAUSES_MAX)?;
            let pauses = list.pauses_ms.iter().copied();
            Ok(Backoff::List(pauses.map(Duration::from_millis).collect()))
        }
    }
}

impl From<Progress> for v1::Progress {
    fn from(progress: Progress) -> Self {
        Self {
            millionths: progress.millionths,
            message: progress.message,
        }
    }
}

/// The progress of a running job.
///
/// # Errors
/// If it is more than all, or the message is too long.
pub fn progress(at: At<'_>, wire: v1::Progress) -> Result<Progress, FieldError> {
    if wire.millionths > 1_000_000 {
        let reason = format_args!("{} is out of range: 0 to 1000000", wire.millionths);
        return Err(FieldError::invalid(at.field("millionths"), reason));
    }
    at_most(
        at.field("message"),
        wire.message.len(),
        limits::PROGRESS_MESSAGE_BYTES_MAX,
    )?;
    Ok(Progress {
        millionths: wire.millionths,
        message: wire.message,
    })
}

impl From<CatchUp> for v1::CatchUp {
    fn from(catch_up: CatchUp) -> Self {
        use v1::catch_up::Rule;
        let rule = match catch_up {
            CatchUp::None => Rule::None(v1::Done {}),
            CatchUp::Last => Rule::Last(v1::Done {}),
            CatchUp::All { max } => Rule::AllMax(max),
        };
        Self { rule: Some(rule) }
    }
}

/// What a schedule does about missed runs; [`CatchUp::Last`] if absent.
///
/// # Errors
/// If more runs are to be made up for than the limit.
pub fn catch_up(at: At<'_>, wire: Option<v1::CatchUp>) -> Result<CatchUp, FieldError> {
    use v1::catch_up::Rule;
    Ok(match wire.and_then(|wire| wire.rule) {
        None | Some(Rule::Last(_)) => CatchUp::Last,
        Some(Rule::None(_)) => CatchUp::None,
        Some(Rule::AllMax(max)) => {
            let limit = limits::SCHEDULE_BACKLOG_MAX;
            let max = bounded(at.field("all_max"), max, limit, limit)?;
            CatchUp::All { max }
        }
    })
}

impl From<Overlap> for v1::Overlap {
    fn from(overlap: Overlap) -> Self {
        match overlap {
            Overlap::Allow => Self::Allow,
            Overlap::Skip => Self::Skip,
            Overlap::Replace => Self::Replace,
        }
    }
}

/// The overlap policy that a number of the schema stands for; [`Overlap::Allow`] for 0, "not said".
///
/// # Errors
/// If the schema has no such policy.
pub fn overlap(at: At<'_>, wire: i32) -> Result<Overlap, FieldError> {
    match v1::Overlap::try_from(wire) {
        Ok(v1::Overlap::Unspecified | v1::Overlap::Allow) => Ok(Overlap::Allow),
        Ok(v1::Overlap::Skip) => Ok(Overlap::Skip),
        Ok(v1::Overlap::Replace) => Ok(Overlap::Replace),
        Err(_) => Err(FieldError::invalid(
            at,
            format_args!("{wire} is not an overlap policy"),
        )),
    }
}
