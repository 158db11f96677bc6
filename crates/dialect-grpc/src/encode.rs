//! From the shard's words to replies. Bytes that are not UTF-8 in names become U+FFFD.

mod explain;
mod insight;
mod job;
mod lease;
mod settings;

use std::time::Duration;

use ganger_proto::v1;
use ganger_types::{
    Backoff, FailurePolicy, JobId, JobState, LabelKey, LabelValue, Progress, RetryPolicy, ShardId,
    Tag,
};

pub(crate) use explain::explanation;
pub(crate) use insight::{event, has_left, statistics, worker};
pub(crate) use job::{changed, enqueued, input, job, log_page, matched, shards};
pub(crate) use lease::{answer, delivery};
pub(crate) use settings::{namespace, queue, schedule};

/// Whole milliseconds, rounded up: what is left of a time must not read as nothing.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A job as it is called everywhere: `shard/id`.
pub(crate) fn global(shard: &ShardId, id: &JobId) -> String {
    format!("{shard}/{}", id.to_text())
}

pub(crate) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

pub(crate) fn state(state: JobState) -> i32 {
    i32::from(state.number())
}

pub(crate) fn policy(policy: FailurePolicy) -> i32 {
    i32::from(match policy {
        FailurePolicy::Fail => v1::FailurePolicy::Fail,
        FailurePolicy::Wait => v1::FailurePolicy::Wait,
        FailurePolicy::Ignore => v1::FailurePolicy::Ignore,
    })
}

pub(crate) fn labels(pairs: &[(LabelKey, LabelValue)]) -> Vec<v1::Label> {
    let label = |(key, value): &(LabelKey, LabelValue)| v1::Label {
        key: key.to_text().into_owned(),
        value: value.to_text().into_owned(),
    };
    pairs.iter().map(label).collect()
}

pub(crate) fn tags(tags: &[Tag]) -> Vec<String> {
    tags.iter().map(|tag| tag.to_text().into_owned()).collect()
}

pub(crate) fn progress(progress: &Progress) -> v1::Progress {
    v1::Progress {
        millionths: progress.millionths,
        message: progress.message.clone(),
    }
}

pub(crate) fn retry(retry: &RetryPolicy) -> v1::RetryPolicy {
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
    v1::RetryPolicy {
        retries_max: Some(retry.retries_max),
        backoff: Some(v1::Backoff { rule: Some(rule) }),
        jitter_percent: u32::from(retry.jitter_percent),
        lease_expirations_max: retry.lease_expirations_max,
    }
}

/// The text of a name that may be absent; empty is absent.
macro_rules! text {
    ($name:expr) => {
        $name
            .as_ref()
            .map(|name| name.to_text().into_owned())
            .unwrap_or_default()
    };
}
pub(crate) use text;
