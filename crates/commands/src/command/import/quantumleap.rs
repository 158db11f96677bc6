//! Imports tasks of QuantumLeap from RQ, which has a hash for each job, and a list and sorted sets of ids for each
//! queue.

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

/// Key prefix of a job.
const JOB: &[u8] = b"rq:job:";
/// Key prefix of a queue's list.
const QUEUE: &[u8] = b"rq:queue:";
/// Number of ids requested at once.
const PAGE: usize = 100;
/// Maximum bytes of jobs that are read at once.
const READ_BYTES: usize = 8 << 20;

/// The list or registry in which a job was found.
#[derive(Clone, Copy)]
enum JobLocation {
    /// The jobs that run, or the queue's list.
    Queued,
    /// The jobs that wait until a time, in seconds since 1970.
    Scheduled(f64),
    /// The failed jobs, kept until a time in seconds since 1970; negative for forever.
    Failed(f64),
    /// None of these: the status of the job decides.
    Unlisted,
}

/// A registry of a queue: its key prefix, and the meaning of its scores.
type Registry = (&'static [u8], fn(f64) -> JobLocation);

/// The state of an import from RQ.
#[derive(Default)]
pub(super) struct Tasks {
    seen: SeenNames,
}

impl Tasks {
    /// Imports the tasks of each queue: running ones, queued ones, those that wait for a retry, and failed ones.
    pub(super) async fn import_queues(
        &mut self,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let running: Registry = (b"rq:wip:", |_| JobLocation::Queued);
        let ended: [Registry; 2] = [
            (b"rq:scheduled:", JobLocation::Scheduled),
            (b"rq:failed:", JobLocation::Failed),
        ];
        if !has_kind(source, b"rq:queues", "set").await? {
            return Ok(());
        }
        let queues = source.request(call(&[b"SMEMBERS", b"rq:queues"])).await?;
        for list in queues.list() {
            let Some(queue) = list.strip_prefix(QUEUE) else {
                continue;
            };
            self.import_registry(running, queue, source, target).await?;
            self.import_queue(&list, source, target).await?;
            for registry in ended {
                self.import_registry(registry, queue, source, target)
                    .await?;
            }
        }
        Ok(())
    }

    /// Imports the tasks in a queue's list, the next one first.
    async fn import_queue(
        &mut self,
        list_key: &Bytes,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        if !has_kind(source, list_key, "list").await? {
            return Ok(());
        }
        let mut at = 0;
        loop {
            let (first, last) = (at.to_string(), (at + PAGE - 1).to_string());
            let page = call(&[b"LRANGE", list_key, first.as_bytes(), last.as_bytes()]);
            let ids = source.request(page).await?.list();
            at += ids.len();
            let is_last = ids.len() < PAGE;
            let ids = ids.into_iter().map(|id| (id, JobLocation::Queued));
            self.import(ids.collect(), source, target).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    async fn import_registry(
        &mut self,
        (prefix, location): Registry,
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
            let page = source.request(page).await?.scores();
            at += page.len();
            let is_last = page.len() < PAGE;
            let ids = page.into_iter().map(|(id, score)| (id, location(score)));
            self.import(ids.collect(), source, target).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Imports the jobs of these keys that were in no list or registry.
    pub(super) async fn import_unlisted(
        &mut self,
        keys: Vec<(Bytes, Bytes)>,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let hashes = keys.iter().filter(|(_, kind)| kind == "hash");
        let ids = hashes.filter_map(|(key, _)| Some(key.slice_ref(key.strip_prefix(JOB)?)));
        let ids: Vec<_> = ids.map(|id| (id, JobLocation::Unlisted)).collect();
        for ids in ids.chunks(PAGE) {
            self.import(ids.to_vec(), source, target).await?;
        }
        Ok(())
    }

    async fn import(
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
        let lengths = source.request_all(calls.collect()).await?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (id, lengths) in ids.into_iter().zip(lengths.chunks(FIELDS.len())) {
            let size: usize = lengths.iter().map(Value::size).sum();
            if size > RECORD_BYTES_MAX {
                target.report.found(RecordKind::Task);
                let reason = "it is larger than 4 MiB, which is the limit of a record";
                target.report.refused(RecordKind::Task, reason, &id.0);
                continue;
            }
            if bytes + size > READ_BYTES {
                import_batch(std::mem::take(&mut batch), source, target).await?;
                bytes = 0;
            }
            bytes += size;
            batch.push(id);
        }
        import_batch(batch, source, target).await
    }
}

/// Whether a key exists and has this Redis type.
async fn has_kind(source: &mut Source, key: &[u8], kind: &str) -> Result<bool, Failure> {
    let kinds = source.kinds(&[Bytes::copy_from_slice(key)]).await?;
    Ok(kinds.first().is_some_and(|it| it == kind))
}

async fn import_batch(
    ids: Vec<(Bytes, JobLocation)>,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let fields = FIELDS.map(str::as_bytes);
    let read = |(id, _): &(Bytes, JobLocation)| {
        let key = [JOB, id].concat();
        call(&[&[b"HMGET", &key[..]], &fields[..]].concat())
    };
    let values = source.request_all(ids.iter().map(read).collect()).await?;
    for ((id, location), value) in ids.into_iter().zip(values) {
        if let Value::Error(text) = &value {
            target.report.found(RecordKind::Task);
            let reason = format!("its hash cannot be read: {text}");
            target.report.refused(RecordKind::Task, &reason, &id);
            continue;
        }
        let fields = Fields(value.each());
        if fields.bytes("data").is_empty() {
            let reason = "the id has no job";
            target.report.skipped(RecordKind::Task, reason, &id);
            continue;
        }
        import_job(&id, location.decide(&fields), &fields, target).await?;
    }
    Ok(())
}

/// How a job is imported.
enum ImportDecision {
    Live(Start),
    Failed(Option<KeepFor>),
    Skipped(&'static str),
}

impl JobLocation {
    /// Decides how a job found here is imported.
    fn decide(self, fields: &Fields) -> ImportDecision {
        match (self, fields.text("status")) {
            (Self::Scheduled(due), _) => ImportDecision::Live(start(due)),
            (Self::Failed(until), _) => failed_until(until),
            // A job that failed with retries left has this status, and is in no registry for a moment.
            (Self::Unlisted, "failed" | "scheduled") => ImportDecision::Failed(None),
            (Self::Unlisted, "finished") => ImportDecision::Skipped("it has succeeded in RQ"),
            (Self::Unlisted, "canceled" | "stopped") => {
                ImportDecision::Skipped("it was cancelled in RQ")
            }
            // Unlisted: its worker had popped it from the list, and died before it ran the job.
            (Self::Queued | Self::Unlisted, _) => ImportDecision::Live(Start::Now),
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
        Err(_) => ImportDecision::Skipped("it had failed, and its time to live has passed"),
    }
}

async fn import_job(
    id: &Bytes,
    decision: ImportDecision,
    fields: &Fields,
    target: &mut Target,
) -> Result<(), Failure> {
    if let ImportDecision::Skipped(reason) = decision {
        target.report.skipped(RecordKind::Task, reason, id);
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
    match decision {
        ImportDecision::Live(start) => job.start = start,
        ImportDecision::Failed(keep) => {
            job.keep_failed = keep.or(job.keep_failed);
            failed = Some(task::last_error(fields));
        }
        ImportDecision::Skipped(_) => {}
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
