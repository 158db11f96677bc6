//! Between the SDK's structs and the wire's: by hand, so that neither freezes the other.

mod import;
mod insight;
mod job;
mod lease;
mod peer;
mod queue;
mod schedule;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ganger_proto::v1;

use crate::error::Error;
use crate::model::{Backoff, FailurePolicy, JobState, KeepFor, Progress, RetryPolicy};

pub(crate) use import::imported;
pub(crate) use lease::{answer, deliveries, wire_report};

/// Whole milliseconds, rounded up: a duration that is not zero must not become zero.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Microseconds since the epoch; times before it are the epoch.
pub(crate) fn us(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The point that `us` stands for; one beyond the system's range is its epoch.
pub(crate) fn at(us: u64) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_micros(us))
        .unwrap_or(UNIX_EPOCH)
}

/// The text as an option; an empty text is `None`.
pub(crate) fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

pub(crate) fn labels(pairs: Vec<(String, String)>) -> Vec<v1::Label> {
    pairs
        .into_iter()
        .map(|(key, value)| v1::Label { key, value })
        .collect()
}

pub(crate) fn pairs(labels: Vec<v1::Label>) -> Vec<(String, String)> {
    labels
        .into_iter()
        .map(|label| (label.key, label.value))
        .collect()
}

pub(crate) fn wire_state(state: JobState) -> i32 {
    let state = match state {
        JobState::Blocked => v1::JobState::Blocked,
        JobState::Scheduled => v1::JobState::Scheduled,
        JobState::Ready => v1::JobState::Ready,
        JobState::Running => v1::JobState::Running,
        JobState::Succeeded => v1::JobState::Succeeded,
        JobState::Failed => v1::JobState::Failed,
        JobState::Cancelled => v1::JobState::Cancelled,
    };
    i32::from(state)
}

/// `None` for "not said".
pub(crate) fn state_or_none(state: i32) -> Result<Option<JobState>, Error> {
    Ok(match v1::JobState::try_from(state) {
        Ok(v1::JobState::Unspecified) => None,
        Ok(v1::JobState::Blocked) => Some(JobState::Blocked),
        Ok(v1::JobState::Scheduled) => Some(JobState::Scheduled),
        Ok(v1::JobState::Ready) => Some(JobState::Ready),
        Ok(v1::JobState::Running) => Some(JobState::Running),
        Ok(v1::JobState::Succeeded) => Some(JobState::Succeeded),
        Ok(v1::JobState::Failed) => Some(JobState::Failed),
        Ok(v1::JobState::Cancelled) => Some(JobState::Cancelled),
        Err(_) => return Err(Error::bad_reply(&format!("job state {state}"))),
    })
}

pub(crate) fn state(state: i32) -> Result<JobState, Error> {
    state_or_none(state)?.ok_or_else(|| Error::bad_reply("a job without a state"))
}

pub(crate) fn wire_policy(policy: FailurePolicy) -> i32 {
    i32::from(match policy {
        FailurePolicy::Fail => v1::FailurePolicy::Fail,
        FailurePolicy::Wait => v1::FailurePolicy::Wait,
        FailurePolicy::Ignore => v1::FailurePolicy::Ignore,
    })
}

pub(crate) fn policy(policy: i32) -> FailurePolicy {
    match v1::FailurePolicy::try_from(policy) {
        Ok(v1::FailurePolicy::Wait) => FailurePolicy::Wait,
        Ok(v1::FailurePolicy::Ignore) => FailurePolicy::Ignore,
        _ => FailurePolicy::Fail,
    }
}

impl From<RetryPolicy> for v1::RetryPolicy {
    fn from(retry: RetryPolicy) -> Self {
        use v1::backoff::Rule;
        let rule = match retry.backoff {
            Backoff::Fixed(pause) => Rule::FixedMs(ms(pause)),
            Backoff::List(pauses) => Rule::List(v1::BackoffList {
                pauses_ms: pauses.into_iter().map(ms).collect(),
            }),
            Backoff::Exponential { base, cap } => Rule::Exponential(v1::BackoffExponential {
                base_ms: ms(base),
                cap_ms: ms(cap),
            }),
        };
        Self {
            retries_max: Some(retry.retries_max),
            backoff: Some(v1::Backoff { rule: Some(rule) }),
            jitter_percent: retry.jitter_percent,
            lease_expirations_max: retry.lease_expirations_max,
        }
    }
}

impl From<v1::RetryPolicy> for RetryPolicy {
    fn from(retry: v1::RetryPolicy) -> Self {
        use v1::backoff::Rule;
        let backoff = match retry.backoff.and_then(|backoff| backoff.rule) {
            None => Backoff::default(),
            Some(Rule::FixedMs(pause)) => Backoff::Fixed(Duration::from_millis(pause)),
            Some(Rule::List(list)) => Backoff::List(
                list.pauses_ms
                    .into_iter()
                    .map(Duration::from_millis)
                    .collect(),
            ),
            Some(Rule::Exponential(rule)) => Backoff::Exponential {
                base: Duration::from_millis(rule.base_ms),
                cap: Duration::from_millis(rule.cap_ms),
            },
        };
        Self {
            retries_max: retry.retries_max.unwrap_or(3),
            backoff,
            jitter_percent: retry.jitter_percent,
            lease_expirations_max: retry.lease_expirations_max,
        }
    }
}

impl From<KeepFor> for v1::KeepFor {
    fn from(keep: KeepFor) -> Self {
        let for_ms = match keep {
            KeepFor::Time(time) => Some(ms(time)),
            KeepFor::Ever => None,
        };
        Self { for_ms }
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

impl From<v1::Progress> for Progress {
    fn from(progress: v1::Progress) -> Self {
        Self {
            millionths: progress.millionths,
            message: progress.message,
        }
    }
}
