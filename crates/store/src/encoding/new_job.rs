//! Jobs to be, as the parts of a submission hold them.

use ganger_types::command::{Dependency, NewEdge, NewInput, NewJob, Start, Unique};
use ganger_types::{Bytes, JobId, JobName, Kind, Priority, Queue, Tag, Timestamp, UniqueKey};

use super::job::{read_labels, write_labels};
use super::peer::{read_job_ref, write_job_ref};
use super::policy::{read_policy, read_retry, write_policy, write_retry};
use super::{Cursor, DecodeError, Writer};

/// The version of jobs to be that is written: the first that tells names.
pub(super) const NEW_JOB: u8 = 2;

const VALUE: u8 = 1;
const RESULT: u8 = 2;

const MEMBER: u8 = 1;
const JOB: u8 = 2;
const REMOTE: u8 = 3;

const NOW: u8 = 1;
const AFTER: u8 = 2;
const AT: u8 = 3;

pub(super) fn write_new_job(out: &mut Writer<'_>, job: &NewJob) {
    out.option(job.id.as_ref(), |out, id| out.bytes(id.as_bytes()));
    out.bytes(job.queue.as_bytes());
    out.bytes(job.kind.as_bytes());
    out.bytes(&job.payload);
    out.length(job.inputs.len());
    job.inputs.iter().for_each(|input| write_input(out, input));
    out.length(job.after.len());
    job.after.iter().for_each(|edge| write_edge(out, edge));
    out.signed(job.priority.millionths());
    write_start(out, job.start);
    out.option(job.deadline, |out, at| out.number(at.0));
    out.option(job.timeout, Writer::duration);
    out.option(job.retry.as_ref(), write_retry);
    out.length(job.tags.len());
    job.tags.iter().for_each(|tag| out.bytes(tag.as_bytes()));
    write_labels(out, &job.labels);
    out.flag(job.tracked);
    out.option(job.unique.as_ref(), |out, unique| {
        out.bytes(unique.key.as_bytes());
        out.option(unique.window, Writer::duration);
    });
    for keep in [job.keep_succeeded, job.keep_failed] {
        out.option(keep, |out, keep| out.option(keep, Writer::duration));
    }
    out.option(job.name.as_ref(), |out, name| out.bytes(name.as_bytes()));
}

/// Reads a job as a part of `version` wrote it: the first version knew no names.
pub(super) fn read_new_job(version: u8, from: &mut Cursor<'_>) -> Result<NewJob, DecodeError> {
    let keep =
        |from: &mut Cursor<'_>| from.option(|from: &mut Cursor<'_>| from.option(Cursor::duration));
    let mut job = NewJob {
        name: None,
        id: from.option(|from| from.name(JobId::new))?,
        queue: from.name(Queue::new)?,
        kind: from.name(Kind::new)?,
        payload: Bytes::copy_from_slice(from.bytes()?),
        inputs: from.list(read_input)?,
        after: from.list(read_edge)?,
        priority: Priority::from_millionths(from.signed()?),
        start: read_start(from)?,
        deadline: from.option(Cursor::number)?.map(Timestamp),
        timeout: from.option(Cursor::duration)?,
        retry: from.option(read_retry)?,
        tags: from.list(|from| from.name(Tag::new))?,
        labels: read_labels(from)?,
        tracked: from.flag()?,
        unique: from.option(read_unique)?,
        keep_succeeded: keep(from)?,
        keep_failed: keep(from)?,
    };
    if version >= NEW_JOB {
        job.name = from.option(|from| from.name(JobName::new))?;
    }
    Ok(job)
}

fn read_unique(from: &mut Cursor<'_>) -> Result<Unique, DecodeError> {
    Ok(Unique {
        key: from.name(UniqueKey::new)?,
        window: from.option(Cursor::duration)?,
    })
}

fn write_input(out: &mut Writer<'_>, input: &NewInput) {
    match input {
        NewInput::Value(value) => {
            out.byte(VALUE);
            out.bytes(value);
        }
        NewInput::Result(edge) => {
            out.byte(RESULT);
            write_edge(out, edge);
        }
    }
}

fn read_input(from: &mut Cursor<'_>) -> Result<NewInput, DecodeError> {
    match from.byte()? {
        VALUE => Ok(NewInput::Value(Bytes::copy_from_slice(from.bytes()?))),
        RESULT => Ok(NewInput::Result(read_edge(from)?)),
        _ => Err(from.error("has an unknown kind of input")),
    }
}

fn write_edge(out: &mut Writer<'_>, edge: &NewEdge) {
    match &edge.dependency {
        Dependency::Member(place) => {
            out.byte(MEMBER);
            out.number(u64::from(*place));
        }
        Dependency::Job(id) => {
            out.byte(JOB);
            out.bytes(id.as_bytes());
        }
        Dependency::Remote { job, is_member } => {
            out.byte(REMOTE);
            write_job_ref(out, job);
            out.flag(*is_member);
        }
    }
    write_policy(out, edge.policy);
}

fn read_edge(from: &mut Cursor<'_>) -> Result<NewEdge, DecodeError> {
    let dependency = match from.byte()? {
        MEMBER => Dependency::Member(from.small()?),
        JOB => Dependency::Job(from.name(JobId::new)?),
        REMOTE => Dependency::Remote {
            job: read_job_ref(from)?,
            is_member: from.flag()?,
        },
        _ => return Err(from.error("has an unknown kind of dependency")),
    };
    let policy = read_policy(from)?;
    Ok(NewEdge { dependency, policy })
}

fn write_start(out: &mut Writer<'_>, start: Start) {
    match start {
        Start::Now => out.byte(NOW),
        Start::After(pause) => {
            out.byte(AFTER);
            out.duration(pause);
        }
        Start::At(at) => {
            out.byte(AT);
            out.number(at.0);
        }
    }
}

fn read_start(from: &mut Cursor<'_>) -> Result<Start, DecodeError> {
    match from.byte()? {
        NOW => Ok(Start::Now),
        AFTER => Ok(Start::After(from.duration()?)),
        AT => Ok(Start::At(Timestamp(from.number()?))),
        _ => Err(from.error("has an unknown kind of start")),
    }
}
