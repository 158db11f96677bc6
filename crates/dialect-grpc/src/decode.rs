//! From requests to commands: every field is checked, and an error names the field.

mod import;
mod job;
mod lease;
mod list;
mod place;
mod settings;

use std::fmt;
use std::time::Duration;

use ganger_proto::v1;
use ganger_types::{
    Backoff, FailurePolicy, JobId, JobRef, JobState, JobStates, LabelKey, LabelValue, NameError,
    Namespace, Priority, Progress, Queue, RetryPolicy, ShardId, limits,
};

use crate::authorization;
use crate::problem::Problem;

pub(crate) use import::import;
pub(crate) use job::{alter, enqueue, members};
pub(crate) use lease::{Asked, cut, hello, lease, report};
pub(crate) use list::{job_query, matching_query};
pub(crate) use place::Shards;
pub(crate) use settings::{namespace_settings, queue_settings, schedule};

/// Pauses that a retry policy may list.
const PAUSES_MAX: usize = 1_000;

/// A place in a request, for messages. Costs nothing until it is shown.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    parent: Option<&'a At<'a>>,
    field: &'a str,
    index: Option<usize>,
}

impl<'a> At<'a> {
    /// A field of the request itself.
    pub(crate) fn top(field: &'a str) -> Self {
        Self {
            parent: None,
            field,
            index: None,
        }
    }

    /// A field below this place.
    pub(crate) fn field(&'a self, field: &'a str) -> Self {
        Self {
            parent: Some(self),
            field,
            index: None,
        }
    }

    /// An entry of the list at this place.
    pub(crate) fn entry(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.field)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

/// A name that must not be empty.
pub(crate) fn name<'a, T>(
    at: At<'_>,
    text: &'a str,
    make: impl FnOnce(&'a str) -> Result<T, NameError>,
) -> Result<T, Problem> {
    if text.is_empty() {
        return Err(Problem::missing(at, "give a name of 1 to 255 bytes"));
    }
    make(text).map_err(|error| Problem::invalid(at, error))
}

/// A name, or nothing.
pub(crate) fn maybe<'a, T>(
    at: At<'_>,
    text: Option<&'a str>,
    make: impl FnOnce(&'a str) -> Result<T, NameError>,
) -> Result<Option<T>, Problem> {
    text.map(|text| name(at, text, make)).transpose()
}

/// A name, or nothing if it is empty.
pub(crate) fn unless_empty<'a, T>(
    at: At<'_>,
    text: &'a str,
    make: impl FnOnce(&'a str) -> Result<T, NameError>,
) -> Result<Option<T>, Problem> {
    maybe(at, Some(text).filter(|text| !text.is_empty()), make)
}

/// The namespace; `default` if it is empty. Refused if the caller may not do there what it has called.
pub(crate) fn namespace(text: &str) -> Result<Namespace, Problem> {
    let namespace = unless_empty(At::top("namespace"), text, Namespace::new)?.unwrap_or_default();
    authorization::check(&namespace)?;
    Ok(namespace)
}

/// A queue; `default` if it is empty.
pub(crate) fn queue(at: At<'_>, text: &str) -> Result<Queue, Problem> {
    let queue = unless_empty(at, text, Queue::new)?.unwrap_or_default();
    authorization::note(|| format!("queue {}", text.escape_debug()));
    Ok(queue)
}

/// A job of ours, by its id or `shard/id`.
pub(crate) fn job_id(here: &ShardId, at: At<'_>, text: &str) -> Result<JobId, Problem> {
    if text.is_empty() {
        return Err(Problem::missing(at, "give the id of a job, or shard/id"));
    }
    authorization::note(|| format!("job {}", text.escape_debug()));
    JobRef::read_local(text.as_bytes(), here)
        .map_err(|error| Problem::new(error.code(), format!("{at}: {error}")))
}

/// Jobs of ours, likewise.
pub(crate) fn each_job<'a, T: FromIterator<JobId>>(
    here: &ShardId,
    at: At<'_>,
    texts: impl IntoIterator<Item = &'a String>,
) -> Result<T, Problem> {
    let each = texts.into_iter().enumerate();
    each.map(|(index, text)| job_id(here, at.entry(index), text))
        .collect()
}

/// Ids for one bulk command.
pub(crate) fn job_ids(here: &ShardId, at: At<'_>, texts: &[String]) -> Result<Vec<JobId>, Problem> {
    if texts.is_empty() {
        return Err(Problem::missing(at, "name at least one job"));
    }
    at_most(at, texts.len(), limits::BULK_JOBS_MAX)?;
    each_job(here, at, texts)
}

pub(crate) fn at_most(at: At<'_>, actual: usize, limit: usize) -> Result<(), Problem> {
    if actual > limit {
        Err(Problem::too_large(at, actual, limit))
    } else {
        Ok(())
    }
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) fn priority(at: At<'_>, value: i64) -> Result<Priority, Problem> {
    Priority::whole(value).ok_or_else(|| {
        let limit = Priority::WHOLE_MAX;
        Problem::invalid(
            at,
            format_args!("{value} is out of range: -{limit} to {limit}"),
        )
    })
}

pub(crate) fn labels(
    at: At<'_>,
    wire: &[v1::Label],
) -> Result<Vec<(LabelKey, LabelValue)>, Problem> {
    at_most(at, wire.len(), limits::LABELS_MAX)?;
    let pair = |(index, label): (usize, &v1::Label)| {
        let at = at.entry(index);
        let key = name(at.field("key"), &label.key, LabelKey::new)?;
        let value = LabelValue::new(&label.value)
            .map_err(|error| Problem::invalid(at.field("value"), error))?;
        Ok((key, value))
    };
    wire.iter().enumerate().map(pair).collect()
}

/// Reads the keys of labels; at most [`limits::LABELS_MAX`].
pub(crate) fn keys(at: At<'_>, wire: &[String]) -> Result<Vec<LabelKey>, Problem> {
    at_most(at, wire.len(), limits::LABELS_MAX)?;
    let key = |(index, text): (usize, &String)| name(at.entry(index), text, LabelKey::new);
    wire.iter().enumerate().map(key).collect()
}

pub(crate) fn tags(at: At<'_>, wire: &[String]) -> Result<Vec<ganger_types::Tag>, Problem> {
    at_most(at, wire.len(), limits::TAGS_MAX)?;
    let tag = |(index, text): (usize, &String)| name(at.entry(index), text, ganger_types::Tag::new);
    wire.iter().enumerate().map(tag).collect()
}

pub(crate) fn policy(at: At<'_>, wire: i32) -> Result<FailurePolicy, Problem> {
    match v1::FailurePolicy::try_from(wire) {
        Ok(v1::FailurePolicy::Unspecified | v1::FailurePolicy::Fail) => Ok(FailurePolicy::Fail),
        Ok(v1::FailurePolicy::Wait) => Ok(FailurePolicy::Wait),
        Ok(v1::FailurePolicy::Ignore) => Ok(FailurePolicy::Ignore),
        Err(_) => Err(Problem::invalid(
            at,
            format_args!("{wire} is not a failure policy"),
        )),
    }
}

/// States to filter by; none, or none that is specified, are all.
pub(crate) fn states(at: At<'_>, wire: &[i32]) -> Result<JobStates, Problem> {
    let state = |wire: &i32| {
        let number = u8::try_from(*wire).ok();
        number
            .and_then(JobState::from_number)
            .ok_or_else(|| Problem::invalid(at, format_args!("{wire} is not a job state")))
    };
    let states: JobStates = wire
        .iter()
        .filter(|wire| **wire != 0)
        .map(state)
        .collect::<Result<_, _>>()?;
    Ok(if states.is_empty() {
        JobStates::ALL
    } else {
        states
    })
}

pub(crate) fn retry(at: At<'_>, wire: &v1::RetryPolicy) -> Result<RetryPolicy, Problem> {
    let default = RetryPolicy::default();
    let jitter = at.field("jitter_percent");
    let jitter_percent = u8::try_from(wire.jitter_percent)
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| {
            Problem::invalid(
                jitter,
                format_args!("{} is out of range: 0 to 100", wire.jitter_percent),
            )
        })?;
    let retries_max = wire.retries_max.unwrap_or(default.retries_max);
    if retries_max > limits::RETRIES_MAX {
        let reason = format_args!(
            "{retries_max} is out of range: 0 to {}",
            limits::RETRIES_MAX
        );
        return Err(Problem::invalid(at.field("retries_max"), reason));
    }
    let lease_expirations_max = wire
        .lease_expirations_max
        .filter(|losses| *losses > limits::RETRIES_MAX);
    if let Some(lease_expirations_max) = lease_expirations_max {
        let reason = format_args!(
            "{lease_expirations_max} is out of range: 0 to {}",
            limits::RETRIES_MAX
        );
        return Err(Problem::invalid(at.field("lease_expirations_max"), reason));
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

fn backoff(at: At<'_>, rule: &v1::backoff::Rule) -> Result<Backoff, Problem> {
    use v1::backoff::Rule;
    match rule {
        Rule::FixedMs(pause) => Ok(Backoff::Fixed(ms(*pause))),
        Rule::Exponential(rule) => Ok(Backoff::Exponential {
            base: ms(rule.base_ms),
            cap: ms(rule.cap_ms),
        }),
        Rule::List(list) => {
            let at = at.field("list");
            let at = at.field("pauses_ms");
            if list.pauses_ms.is_empty() {
                return Err(Problem::missing(at, "give at least one pause"));
            }
            at_most(at, list.pauses_ms.len(), PAUSES_MAX)?;
            Ok(Backoff::List(
                list.pauses_ms.iter().copied().map(ms).collect(),
            ))
        }
    }
}

pub(crate) fn progress(at: At<'_>, wire: v1::Progress) -> Result<Progress, Problem> {
    if wire.millionths > 1_000_000 {
        let reason = format_args!("{} is out of range: 0 to 1000000", wire.millionths);
        return Err(Problem::invalid(at.field("millionths"), reason));
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

/// A number with a default for 0 and an upper limit.
pub(crate) fn bounded(at: At<'_>, value: u32, default: u32, limit: u32) -> Result<u32, Problem> {
    match value {
        0 => Ok(default),
        _ if value > limit => Err(Problem::invalid(
            at,
            format_args!("{value} is out of range: 1 to {limit}"),
        )),
        _ => Ok(value),
    }
}

/// How long to wait, which has its own limit.
pub(crate) fn wait_for(at: At<'_>, wait_ms: u64) -> Result<Duration, Problem> {
    let limit = limits::WAIT_FOR_MAX;
    let wait = ms(wait_ms);
    if wait > limit {
        let reason = format_args!("{wait_ms} is out of range: 0 to {}", limit.as_millis());
        return Err(Problem::invalid(at, reason));
    }
    Ok(wait)
}
