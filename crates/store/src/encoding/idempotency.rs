//! The stored form of an idempotency key.
//!
//! Version 1 had a number and an id for each job; version 2 has runs of them.

use ganger_types::{
    Graph, IdTag, IdempotencyKey, IdempotencyRecord, JobId, JobKey, Namespace, SubmissionAnswer,
    SubmittedJobs, SubmittedRun, Timestamp,
};

use super::cursor::{Cursor, DecodeError};
use super::{Record, Writer};

/// A made id has room for numbers and marks below these.
const MADE_KEYS: u64 = 1 << 40;
const ID_TAGS: u32 = 1 << 20;

const MADE: u8 = 1;
const GIVEN: u8 = 2;
const OTHER: u8 = 3;

impl Record for IdempotencyRecord {
    const VERSION: u8 = 2;
    const WHAT: &'static str = "idempotency key";

    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.namespace.as_bytes());
        out.bytes(self.key.as_bytes());
        out.raw(&self.answer.fingerprint.to_le_bytes());
        out.length(self.answer.jobs.runs().len());
        for run in self.answer.jobs.runs() {
            write_run(run, out);
        }
        out.option(self.answer.graph.as_ref(), |out, graph| {
            out.bytes(graph.as_bytes());
        });
        out.number(self.answer.until.0);
    }

    fn read(version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let namespace = from.name(Namespace::new)?;
        let key = from.name(IdempotencyKey::new)?;
        let fingerprint =
            u64::from_le_bytes(from.raw(8)?.try_into().expect("eight bytes were taken"));
        let jobs = if version == 1 {
            read_version_1(from)?
        } else {
            SubmittedJobs::from_runs(from.list(read_run)?)
        };
        let answer = SubmissionAnswer {
            fingerprint,
            jobs,
            graph: from.option(|from| from.name(Graph::new))?,
            until: Timestamp(from.number()?),
        };
        Ok(Self {
            namespace,
            key,
            answer,
        })
    }
}

/// Which ids the client gave was not written, so they stay as they are.
fn read_version_1(from: &mut Cursor<'_>) -> Result<SubmittedJobs, DecodeError> {
    let jobs = from.list(|from| Ok((JobKey(from.number()?), from.name(JobId::new)?)))?;
    Ok(SubmittedJobs::collect(
        jobs.iter().map(|(key, id)| (*key, id, false)),
    ))
}

fn write_run(run: &SubmittedRun, out: &mut Writer<'_>) {
    match run {
        SubmittedRun::Made { first, count, tag } => {
            out.byte(MADE);
            out.number(first.0);
            out.number(u64::from(*count));
            out.number(u64::from(tag.0));
        }
        SubmittedRun::Given { first, count } => {
            out.byte(GIVEN);
            out.number(first.0);
            out.number(u64::from(*count));
        }
        SubmittedRun::Other(key, id) => {
            out.byte(OTHER);
            out.number(key.0);
            out.bytes(id.as_bytes());
        }
    }
}

fn read_run(from: &mut Cursor<'_>) -> Result<SubmittedRun, DecodeError> {
    match from.byte()? {
        MADE => {
            let (first, count) = read_numbers(MADE_KEYS, from)?;
            let tag = from.small()?;
            if tag >= ID_TAGS {
                return Err(from.error("has a start that no id can tell"));
            }
            let tag = IdTag(tag);
            Ok(SubmittedRun::Made { first, count, tag })
        }
        GIVEN => {
            let (first, count) = read_numbers(u64::MAX, from)?;
            Ok(SubmittedRun::Given { first, count })
        }
        OTHER => Ok(SubmittedRun::Other(
            JobKey(from.number()?),
            from.name(JobId::new)?,
        )),
        _ => Err(from.error("has jobs of an unknown form")),
    }
}

/// The numbers of a run, all of them below `end`.
fn read_numbers(end: u64, from: &mut Cursor<'_>) -> Result<(JobKey, u32), DecodeError> {
    let (first, count) = (from.number()?, from.small::<u32>()?);
    let fits = first
        .checked_add(u64::from(count))
        .is_some_and(|after| after <= end);
    if count == 0 || !fits {
        return Err(from.error("has a run of jobs without beginning or end"));
    }
    Ok((JobKey(first), count))
}
