//! Checks of a submission: sizes, values, and references that do not exist or form a cycle (`rel G7`).

use ganger_types::command::{Dependency, Enqueue, NewInput, NewJob};
use ganger_types::limits;
use ganger_types::{Backoff, NamespaceSettings, Now, Rejection, RetryPolicy};

use super::edges_of;
use crate::check::{at_most, check_named};

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Checks everything about each job that does not depend on other jobs.
pub(super) fn check_sizes(
    cmd: &Enqueue,
    settings: &NamespaceSettings,
    now: Now,
) -> Result<(), Rejection> {
    if cmd.jobs.is_empty() {
        return Err(Rejection::NothingSubmitted);
    }
    if let Some(key) = &cmd.idempotency_key {
        check_named("an idempotency key", key.as_bytes())?;
    }
    at_most(
        "the number of jobs of a submission",
        count(cmd.jobs.len()),
        count(limits::GRAPH_JOBS_MAX),
    )?;
    let mut bytes = 0;
    for (index, job) in cmd.jobs.iter().enumerate() {
        check_job(index, job, settings, now)?;
        bytes += count(job.payload.len());
        for input in &job.inputs {
            if let NewInput::Value(value) = input {
                at_most(
                    "the size of an input in bytes",
                    count(value.len()),
                    settings.payload_bytes_max,
                )?;
                bytes += count(value.len());
            }
        }
    }
    at_most(
        "the size of a submission in bytes",
        bytes,
        count(limits::GRAPH_BYTES_MAX),
    )
}

fn check_job(
    index: usize,
    job: &NewJob,
    settings: &NamespaceSettings,
    now: Now,
) -> Result<(), Rejection> {
    if job.kind.is_empty() {
        return Err(Rejection::KindMissing { index });
    }
    check_named("the name of a queue", job.queue.as_bytes())?;
    for tag in &job.tags {
        check_named("a tag", tag.as_bytes())?;
    }
    for (key, _) in &job.labels {
        check_named("the key of a label", key.as_bytes())?;
    }
    if let Some(unique) = &job.unique {
        check_named("a unique key", unique.key.as_bytes())?;
    }
    let payload_max = settings.payload_bytes_max.min(u64::from(u32::MAX));
    at_most(
        "the size of a payload in bytes",
        count(job.payload.len()),
        payload_max,
    )?;
    let inputs = count(job.inputs.len() + job.after.len());
    at_most(
        "the number of inputs of a job",
        inputs,
        count(limits::INPUTS_MAX),
    )?;
    at_most(
        "the number of tags of a job",
        count(job.tags.len()),
        count(limits::TAGS_MAX),
    )?;
    at_most(
        "the number of labels of a job",
        count(job.labels.len()),
        count(limits::LABELS_MAX),
    )?;
    if let Some(retry) = &job.retry {
        check_retry(retry)?;
    }
    if job.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(Rejection::OutOfRange {
            what: "timeout",
            expected: "longer than zero, or absent",
        });
    }
    if let Some(deadline) = job.deadline.filter(|deadline| *deadline <= now.wall) {
        return Err(Rejection::DeadlinePassed {
            index,
            late: now.wall.since(deadline),
        });
    }
    Ok(())
}

/// Refuses an invalid retry policy.
pub(crate) fn check_retry(retry: &RetryPolicy) -> Result<(), Rejection> {
    at_most(
        "the number of retries",
        u64::from(retry.retries_max),
        u64::from(limits::RETRIES_MAX),
    )?;
    if retry.jitter_percent > 100 {
        return Err(Rejection::OutOfRange {
            what: "jitter",
            expected: "between 0 and 100 per cent",
        });
    }
    at_most(
        "the number of lease expirations",
        retry.lease_expirations_max.map_or(0, u64::from),
        u64::from(limits::RETRIES_MAX),
    )?;
    match &retry.backoff {
        Backoff::List(pauses) if pauses.is_empty() => Err(Rejection::OutOfRange {
            what: "the list of pauses",
            expected: "at least one long",
        }),
        Backoff::List(pauses) => at_most(
            "the number of pauses",
            count(pauses.len()),
            count(limits::BACKOFF_PAUSES_MAX),
        ),
        Backoff::Fixed(_) | Backoff::Exponential { .. } => Ok(()),
    }
}

/// Checks references between members: they must exist and must not form a cycle.
pub(crate) fn check_references(jobs: &[&NewJob]) -> Result<(), Rejection> {
    let members = jobs.len();
    let mut waits_for = vec![0_usize; members];
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); members];
    for (index, job) in jobs.iter().enumerate() {
        for edge in edges_of(job) {
            let Dependency::Member(member) = edge.dependency else {
                continue;
            };
            let place = usize::try_from(member).unwrap_or(usize::MAX);
            if place >= members {
                return Err(Rejection::MemberNotFound {
                    index,
                    member,
                    count: members,
                });
            }
            waits_for[index] += 1;
            dependents[place].push(index);
        }
    }
    let mut free: Vec<usize> = (0..members)
        .filter(|index| waits_for[*index] == 0)
        .collect();
    let mut seen = 0;
    while let Some(index) = free.pop() {
        seen += 1;
        for dependent in &dependents[index] {
            waits_for[*dependent] -= 1;
            if waits_for[*dependent] == 0 {
                free.push(*dependent);
            }
        }
    }
    if seen < members {
        let index = waits_for
            .iter()
            .position(|left| *left > 0)
            .expect("some were not seen");
        return Err(Rejection::Cycle { index });
    }
    Ok(())
}
