//! Tasks of QuantumLeap that lie in RQ: a hash for each, and a list and sorted sets of ids for each queue.

mod pickle;
mod task;

use std::time::{Duration, SystemTime};

use ganger_client::{Bytes, ImportRecord, KeepFor, Start};

use self::task::{FIELDS, Fields};
use super::SeenNames;
use super::batch::{RECORD_BYTES_MAX, Target};
use super::report::RecordKind;
use super::source::{Source, call};
use super::value::Value;
use crate::exit::Failure;

/// Before the id in the name of a job's key.
const JOB: &[u8] = b"rq:job:";
/// Before the name of a queue in the name of its list.
const QUEUE: &[u8] = b"rq:queue:";
/// Ids that are looked at once.
const PAGE: usize = 100;
/// Bytes of jobs that are read at once.
const READ_BYTES: usize = 8 << 20;

/// Where a job was found.
#[derive(Clone, Copy)]
enum JobLocation {
    /// Among the jobs that run, or in line.
    Line,
    /// Among those that wait for a time: seconds since 1970.
    Scheduled(f64),
    /// Among those that have failed, until a time; a negative one is forever.
    Failed(f64),
    /// In none of these: its status says it.
    Nowhere,
}

/// A registry of a queue: what its key begins with, and what the scores in it are.
type Registry = (&'static [u8], fn(f64) -> JobLocation);

/// The jobs that were dealt with.
#[derive(Default)]
pub(super) struct Tasks {
    seen: SeenNames,
}

impl Tasks {
    /// The tasks of each queue: those that run, those in line, those that wait for a retry, those that have failed.
    pub(super) async fn begin(
        &mut self,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let running: Registry = (b"rq:wip:", |_| JobLocation::Line);
        let ended: [Registry; 2] = [
            (b"rq:scheduled:", JobLocation::Scheduled),
            (b"rq:failed:", JobLocation::Failed),
        ];
        if !has_kind(source, b"rq:queues", "set").await? {
            return Ok(());
        }
        let queues = source.one(call(&[b"SMEMBERS", b"rq:queues"])).await?;
        for list in queues.list() {
            let Some(queue) = list.strip_prefix(QUEUE) else {
                continue;
            };
            self.take_registry(running, queue, source, target).await?;
            self.take_line(&list, source, target).await?;
            for registry in ended {
                self.take_registry(registry, queue, source, target).await?;
            }
        }
        Ok(())
    }

    /// The ids in a queue's list, that which is next first.
    async fn take_line(
        &mut self,
        line: &Bytes,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        if !has_kind(source, line, "list").await? {
            return Ok(());
        }
        let mut at = 0;
        loop {
            let (first, last) = (at.to_string(), (at + PAGE - 1).to_string());
            let page = call(&[b"LRANGE", line, first.as_bytes(), last.as_bytes()]);
            let ids = source.one(page).await?.list();
            at += ids.len();
            let is_last = ids.len() < PAGE;
            let ids = ids.into_iter().map(|id| (id, JobLocation::Line));
            self.take(ids.collect(), source, target).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    async fn take_registry(
        &mut self,
        (prefix, place): Registry,
        queue: &[u8],
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let key = [prefix, queue].concat();
        if !has_kind(source, &key, "zset").await? {
            return Ok(());
        }
        let mut at = 0;
        loop {
            let (first, last) = (at.to_string(), (at + PAGE - 1).to_string());
            let (first, last) = (first.as_bytes(), last.as_bytes());
            let page = call(&[b"ZRANGE", &key, first, last, b"WITHSCORES"]);
            let page = source.one(page).await?.scores();
            at += page.len();
            let is_last = page.len() < PAGE;
            let ids = page.into_iter().map(|(id, score)| (id, place(score)));
            self.take(ids.collect(), source, target).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// The jobs among these keys that were in no list or registry.
    pub(super) async fn take_keys(
        &mut self,
        keys: Vec<(Bytes, Bytes)>,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let hashes = keys.iter().filter(|(_, kind)| kind == "hash");
        let ids = hashes.filter_map(|(key, _)| Some(key.slice_ref(key.strip_prefix(JOB)?)));
        let ids: Vec<_> = ids.map(|id| (id, JobLocation::Nowhere)).collect();
        for ids in ids.chunks(PAGE) {
            self.take(ids.to_vec(), source, target).await?;
        }
        Ok(())
    }

    async fn take(
        &mut self,
        mut ids: Vec<(Bytes, JobLocation)>,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        ids.retain(|(id, _)| self.seen.is_new(id));
        let fields = FIELDS.map(str::as_bytes);
        let length = |id: &Bytes, field: &[u8]| call(&[b"HSTRLEN", &[JOB, id].concat(), field]);
        let calls = ids.iter();
        let calls = calls.flat_map(|(id, _)| fields.map(|field| length(id, field)));
        let lengths = source.ask(calls.collect()).await?;
        let (mut some, mut bytes) = (Vec::new(), 0);
        for (id, lengths) in ids.into_iter().zip(lengths.chunks(FIELDS.len())) {
            let size: usize = lengths.iter().map(Value::size).sum();
            if size > RECORD_BYTES_MAX {
                target.report.found(RecordKind::Task);
                let reason = "it is larger than 4 MiB, which is the limit of a record";
                target.report.refused(RecordKind::Task, reason, &id.0);
                continue;
            }
            if bytes + size > READ_BYTES {
                take_some(std::mem::take(&mut some), source, target).await?;
                bytes = 0;
            }
            bytes += size;
            some.push(id);
        }
        take_some(some, source, target).await
    }
}

/// Whether a key is there and holds this.
async fn has_kind(source: &mut Source, key: &[u8], kind: &str) -> Result<bool, Failure> {
    let kinds = source.kinds(&[Bytes::copy_from_slice(key)]).await?;
    Ok(kinds.first().is_some_and(|it| it == kind))
}

async fn take_some(
    ids: Vec<(Bytes, JobLocation)>,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let fields = FIELDS.map(str::as_bytes);
    let read = |(id, _): &(Bytes, JobLocation)| {
        let key = [JOB, id].concat();
        call(&[&[b"HMGET", &key[..]], &fields[..]].concat())
    };
    let values = source.ask(ids.iter().map(read).collect()).await?;
    for ((id, place), value) in ids.into_iter().zip(values) {
        if let Value::Error(text) = &value {
            target.report.found(RecordKind::Task);
            let reason = format!("its hash cannot be read: {text}");
            target.report.refused(RecordKind::Task, &reason, &id);
            continue;
        }
        let fields = Fields(value.each());
        if fields.bytes("data").is_empty() {
            let reason = "an id without a job is no task";
            target.report.left_out(RecordKind::Task, reason, &id);
            continue;
        }
        take_one(&id, place.settled(&fields), &fields, target).await?;
    }
    Ok(())
}

/// What becomes of a job.
enum ImportDecision {
    Waits(Start),
    Failed(Option<KeepFor>),
    LeftOut(&'static str),
}

impl JobLocation {
    /// What becomes of a job in this place.
    fn settled(self, fields: &Fields) -> ImportDecision {
        match (self, fields.text("status")) {
            (Self::Scheduled(due), _) => ImportDecision::Waits(start(due)),
            (Self::Failed(until), _) => failed_until(until),
            // One that was given up with retries left keeps this status, and is in no registry for a moment.
            (Self::Nowhere, "failed" | "scheduled") => ImportDecision::Failed(None),
            (Self::Nowhere, "finished") => ImportDecision::LeftOut("it has succeeded in RQ"),
            (Self::Nowhere, "canceled" | "stopped") => {
                ImportDecision::LeftOut("it was cancelled in RQ")
            }
            // Nowhere: its worker had taken it from the line, and was gone before it ran.
            (Self::Line | Self::Nowhere, _) => ImportDecision::Waits(Start::Now),
        }
    }
}

fn start(due: f64) -> Start {
    let due = Duration::try_from_secs_f64(due).ok();
    let due = due.and_then(|due| SystemTime::UNIX_EPOCH.checked_add(due));
    due.map_or(Start::Now, Start::At)
}

fn failed_until(until: f64) -> ImportDecision {
    if until < 0.0 {
        return ImportDecision::Failed(Some(KeepFor::Ever));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let left = until - now.unwrap_or_default().as_secs_f64();
    match Duration::try_from_secs_f64(left) {
        Ok(left) => ImportDecision::Failed(Some(KeepFor::Time(left))),
        Err(_) if left > 0.0 => ImportDecision::Failed(Some(KeepFor::Ever)),
        Err(_) => ImportDecision::LeftOut("it had failed, and its time to live is over"),
    }
}

async fn take_one(
    id: &Bytes,
    fate: ImportDecision,
    fields: &Fields,
    target: &mut Target,
) -> Result<(), Failure> {
    if let ImportDecision::LeftOut(reason) = fate {
        target.report.left_out(RecordKind::Task, reason, id);
        return Ok(());
    }
    let mut job = match task::job(id, fields) {
        Ok(job) => job,
        Err(reason) => {
            target.report.found(RecordKind::Task);
            target.report.refused(RecordKind::Task, &reason, id);
            return Ok(());
        }
    };
    let mut failed = None;
    match fate {
        ImportDecision::Waits(start) => job.start = start,
        ImportDecision::Failed(keep) => {
            job.keep_failed = keep.or(job.keep_failed);
            failed = Some(task::last_error(fields));
        }
        ImportDecision::LeftOut(_) => {}
    }
    let bytes = job.payload.len();
    let job = Box::new(job);
    let record = ImportRecord::Job { job, failed };
    target.send(RecordKind::Task, id, bytes, record).await
}

#[cfg(test)]
mod tests {
    use ganger_client::{KeepFor, Start};

    use super::{ImportDecision, failed_until, start};

    #[test]
    fn scores_of_any_kind_are_times() {
        for odd in [-1.0, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert!(matches!(start(odd), Start::Now), "{odd}");
        }
        assert!(matches!(start(1.5), Start::At(_)));
        let kept = |until: f64| match failed_until(until) {
            ImportDecision::Failed(keep) => keep,
            _ => None,
        };
        assert_eq!(kept(-1.0), Some(KeepFor::Ever));
        assert_eq!(kept(f64::INFINITY), Some(KeepFor::Ever));
        assert_eq!(kept(1.0), None, "its time to live is over");
        assert!(matches!(kept(1e10), Some(KeepFor::Time(_))));
    }
}
