//! States and policies of jobs and schedules.

use std::time::Duration;

use ganger_types::command::TakeMode;
use ganger_types::{
    Backoff, CatchUp, FailurePolicy, JobState, Overlap, Priority, Progress, RetryPolicy, limits,
};

use super::{At, FieldError, at_most, bounded, ms};
use crate::v1;

/// Millionths in a whole priority.
const MILLIONTHS: i64 = 1_000_000;

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

/// The state with a number of the schema; `None` for 0, which means unspecified.
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

/// The fraction of a priority, in millionths, that is added to its whole part.
#[expect(
    clippy::missing_panics_doc,
    reason = "the remainder is less than a million"
)]
pub fn priority_millionths(priority: Priority) -> u32 {
    let fraction = priority.millionths().rem_euclid(MILLIONTHS);
    u32::try_from(fraction).expect("a fraction is less than a million millionths")
}

/// The priority of a job as shown: its whole part, rounded down, and the millionths that are added to it.
///
/// # Errors
/// If the fraction is one or more, or the priority is out of range.
pub fn priority(at: At<'_>, whole: i64, millionths: u32) -> Result<Priority, FieldError> {
    let fraction = i64::from(millionths);
    let sum = i128::from(whole) * i128::from(MILLIONTHS) + i128::from(fraction);
    match i64::try_from(sum) {
        Ok(sum) if fraction < MILLIONTHS => Ok(Priority::from_millionths(sum)),
        _ => Err(FieldError::invalid(
            at,
            format_args!("{whole} and {millionths} millionths are not a priority"),
        )),
    }
}

/// The failure policy with a number of the schema; [`FailurePolicy::Fail`] for 0, which means unspecified.
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

/// Checks the retry policy of a request. Answers may contain others: jobs of qless and of raw keys have unlimited
/// retries.
///
/// # Errors
/// If a number is out of its range or a list of pauses is empty or too long.
pub fn check_retry(at: At<'_>, wire: &v1::RetryPolicy) -> Result<(), FieldError> {
    in_range(at.field("jitter_percent"), wire.jitter_percent, 100)?;
    for (field, given) in [
        ("retries_max", wire.retries_max),
        ("lease_expirations_max", wire.lease_expirations_max),
    ] {
        in_range(at.field(field), given.unwrap_or(0), limits::RETRIES_MAX)?;
    }
    let rule = wire.backoff.as_ref().and_then(|it| it.rule.as_ref());
    if let Some(v1::backoff::Rule::List(list)) = rule {
        let at = at.field("backoff");
        let at = at.field("list");
        let at = at.field("pauses_ms");
        if list.pauses_ms.is_empty() {
            return Err(FieldError::missing(at, "give at least one pause"));
        }
        at_most(at, list.pauses_ms.len(), limits::BACKOFF_PAUSES_MAX)?;
    }
    Ok(())
}

fn in_range(at: At<'_>, given: u32, most: u32) -> Result<(), FieldError> {
    if given > most {
        let reason = format_args!("{given} is out of range: 0 to {most}");
        return Err(FieldError::invalid(at, reason));
    }
    Ok(())
}

/// A retry policy; absent fields have the default. Call [`check_retry`] first for a request.
///
/// # Errors
/// If the jitter is larger than 255 percent.
pub fn retry(at: At<'_>, wire: &v1::RetryPolicy) -> Result<RetryPolicy, FieldError> {
    let default = RetryPolicy::default();
    let jitter = u8::try_from(wire.jitter_percent).map_err(|_| {
        let reason = format_args!("{} is out of range: 0 to 100", wire.jitter_percent);
        FieldError::invalid(at.field("jitter_percent"), reason)
    })?;
    let rule = wire.backoff.as_ref().and_then(|it| it.rule.as_ref());
    Ok(RetryPolicy {
        retries_max: wire.retries_max.unwrap_or(default.retries_max),
        backoff: rule.map_or(default.backoff, backoff),
        jitter_percent: jitter,
        lease_expirations_max: wire.lease_expirations_max,
    })
}

fn backoff(rule: &v1::backoff::Rule) -> Backoff {
    use v1::backoff::Rule;
    match rule {
        Rule::FixedMs(pause) => Backoff::Fixed(Duration::from_millis(*pause)),
        Rule::Exponential(rule) => Backoff::Exponential {
            base: Duration::from_millis(rule.base_ms),
            cap: Duration::from_millis(rule.cap_ms),
        },
        Rule::List(list) => {
            let pauses = list.pauses_ms.iter().copied();
            Backoff::List(pauses.map(Duration::from_millis).collect())
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

/// Checks the progress of a request.
///
/// # Errors
/// If the fraction is above 1, or the message is too long.
pub fn check_progress(at: At<'_>, wire: &v1::Progress) -> Result<(), FieldError> {
    in_range(at.field("millionths"), wire.millionths, 1_000_000)?;
    let bytes = wire.message.len();
    at_most(
        at.field("message"),
        bytes,
        limits::PROGRESS_MESSAGE_BYTES_MAX,
    )
}

impl From<v1::Progress> for Progress {
    /// Call [`check_progress`] first for a request.
    fn from(wire: v1::Progress) -> Self {
        Self {
            millionths: wire.millionths,
            message: wire.message,
        }
    }
}

impl From<TakeMode> for v1::TakeMode {
    fn from(mode: TakeMode) -> Self {
        match mode {
            TakeMode::Ordered => Self::Ordered,
            TakeMode::RoundRobin => Self::RoundRobin,
            TakeMode::Weighted => Self::Weighted,
        }
    }
}

/// The mode with a number of the schema; [`TakeMode::Ordered`] for 0, which means unspecified.
///
/// # Errors
/// If the schema has no such order.
pub fn take_mode(at: At<'_>, wire: i32) -> Result<TakeMode, FieldError> {
    match v1::TakeMode::try_from(wire) {
        Ok(v1::TakeMode::Unspecified | v1::TakeMode::Ordered) => Ok(TakeMode::Ordered),
        Ok(v1::TakeMode::RoundRobin) => Ok(TakeMode::RoundRobin),
        Ok(v1::TakeMode::Weighted) => Ok(TakeMode::Weighted),
        Err(_) => Err(FieldError::invalid(
            at,
            format_args!("{wire} is not a way of taking"),
        )),
    }
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

/// The rule for missed runs; [`CatchUp::Last`] if absent.
///
/// # Errors
/// If the maximum number of missed runs is beyond the limit.
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

/// The overlap policy with a number of the schema; [`Overlap::Allow`] for 0, which means unspecified.
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
