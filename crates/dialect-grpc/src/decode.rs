//! From requests to commands: every field is checked, and an error names the field.

mod import;
mod job;
mod lease;
mod list;
mod place;
mod schedule;
mod series;

use std::time::Duration;

use ganger_proto::convert;
use ganger_proto::v1;
use ganger_types::{
    JobId, JobRef, JobStates, LabelKey, LabelValue, NameError, Namespace, Priority, Progress,
    Queue, RetryPolicy, ShardId, limits,
};

use crate::authorization;
use crate::problem::Problem;

pub(crate) use ganger_proto::convert::At;
pub(crate) use import::import;
pub(crate) use job::{alter, enqueue, members, start};
pub(crate) use lease::{StreamSettings, cut, hello, lease, report};
pub(crate) use list::{Order, job_query, listing, matching_query};
pub(crate) use place::Shards;
pub(crate) use schedule::{preview, schedule};
pub(crate) use series::{kinds, label_values, latency, names, series};

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

/// A retry policy that a request may ask for.
pub(crate) fn retry(at: At<'_>, wire: &v1::RetryPolicy) -> Result<RetryPolicy, Problem> {
    convert::check_retry(at, wire)?;
    Ok(convert::retry(at, wire)?)
}

/// Refuses settings at `at` whose retry policy a request may not ask for.
pub(crate) fn check_retry(at: At<'_>, wire: Option<&v1::RetryPolicy>) -> Result<(), Problem> {
    let checked = wire.map_or(Ok(()), |policy| {
        convert::check_retry(at.field("retry"), policy)
    });
    Ok(checked?)
}

/// Progress that a request may report.
pub(crate) fn progress(at: At<'_>, wire: v1::Progress) -> Result<Progress, Problem> {
    convert::check_progress(at, &wire)?;
    Ok(wire.into())
}

pub(crate) fn at_most(at: At<'_>, actual: usize, limit: usize) -> Result<(), Problem> {
    Ok(convert::at_most(at, actual, limit)?)
}

/// A number with a default for 0 and an upper limit.
pub(crate) fn bounded(at: At<'_>, value: u32, default: u32, limit: u32) -> Result<u32, Problem> {
    Ok(convert::bounded(at, value, default, limit)?)
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

/// States to filter by; none, or none that is specified, are all.
pub(crate) fn states(at: At<'_>, wire: &[i32]) -> Result<JobStates, Problem> {
    let said = wire
        .iter()
        .filter_map(|wire| convert::job_state(at, *wire).transpose());
    let states: JobStates = said.collect::<Result<_, _>>()?;
    Ok(if states.is_empty() {
        JobStates::ALL
    } else {
        states
    })
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
