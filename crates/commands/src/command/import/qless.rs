//! Imports what the qless script stores in a Redis.

mod job;

use std::collections::BTreeSet;

use ganger_client::import::{QlessSource, QlessStatisticsSource, QlessTime};
use ganger_client::{Bytes, ImportRecord};

use super::SeenNames;
use super::batch::Target;
use super::report::RecordKind;
use super::source::{Call, Source, call};
use super::value::Value;
use crate::exit::Failure;

/// Number of members of a set or list requested at once.
pub(super) const PAGE: usize = 500;

/// Whether a key belongs to qless.
pub(super) fn owns(key: &[u8]) -> bool {
    key.starts_with(b"ql:")
}

/// The state of an import from qless.
#[derive(Default)]
pub(super) struct Qless {
    jobs: SeenNames,
    /// Queues and days whose statistics have been sent.
    days: SeenNames,
    /// Keys of the sets of blocked jobs.
    depends: BTreeSet<Bytes>,
}

impl Qless {
    /// Imports what must precede the other jobs: options, queues, workers, and failed jobs in the order of their
    /// failures.
    pub(super) async fn import_before_jobs(
        &mut self,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let options = source.request(call(&[b"HGETALL", b"ql:config"])).await?;
        for (option, value) in options.pairs() {
            let (name, bytes) = (option.clone(), option.len() + value.len());
            let record = QlessSource::Setting { option, value };
            send(target, RecordKind::QlessOption, &name, bytes, record).await?;
        }
        import_queues(source, target).await?;
        for (name, at) in scores(source, b"ql:workers").await? {
            let record = QlessSource::Worker {
                name: name.clone(),
                seen_at: QlessTime::new(at),
            };
            send(target, RecordKind::QlessWorker, &name, name.len(), record).await?;
        }
        let groups = source.request(call(&[b"SMEMBERS", b"ql:failures"])).await?;
        for group in groups.list() {
            self.import_failed_jobs(&group, source, target).await?;
        }
        Ok(())
    }

    /// Imports the jobs of a failure group, the oldest failure first; the list has the newest first.
    async fn import_failed_jobs(
        &mut self,
        group: &Bytes,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let key = [b"ql:f:", &group[..]].concat();
        let mut end = source.request(call(&[b"LLEN", &key])).await?.size();
        while end > 0 {
            let from = end.saturating_sub(PAGE);
            let (first, last) = (from.to_string(), (end - 1).to_string());
            let page = call(&[b"LRANGE", &key, first.as_bytes(), last.as_bytes()]);
            let mut jids = source.request(page).await?.list();
            jids.reverse();
            self.import_jobs(jids, source, target).await?;
            end = from;
        }
        Ok(())
    }

    /// Imports the records of these keys; each key comes with its Redis type.
    pub(super) async fn import_keys(
        &mut self,
        keys: Vec<(Bytes, Bytes)>,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let mut jids = Vec::new();
        for (key, kind) in keys {
            let name = |prefix: &[u8]| key.strip_prefix(prefix).map(|name| key.slice_ref(name));
            let is_hash = kind == "hash";
            if let (Some(jid), true) = (name(b"ql:j:"), is_hash) {
                jids.push(jid);
            } else if let (Some(jid), true) = (name(b"ql:r:"), is_hash) {
                import_recurring_job(&key, jid, source, target).await?;
            } else if let (Some(id), true) = (name(b"ql:th:"), is_hash) {
                import_throttle(&key, id, source, target).await?;
            } else if let (Some(rest), true) = (name(b"ql:s:"), is_hash) {
                self.import_statistics(&rest, source, target).await?;
            } else if key.starts_with(b"ql:q:") && key.ends_with(b"-depends") {
                self.depends.insert(key);
            } else if !belongs_to_other_records(&key) {
                target.report.other_key(&key);
            }
        }
        self.import_jobs(jids, source, target).await
    }

    async fn import_jobs(
        &mut self,
        mut jids: Vec<Bytes>,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        jids.retain(|jid| self.jobs.is_new(jid));
        job::import(jids, source, target).await
    }

    /// Imports the statistics of a queue and day, named by a key after its prefix `ql:s:`. They are in three hashes,
    /// all read when the first of their keys is found.
    async fn import_statistics(
        &mut self,
        rest: &Bytes,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let mut parts = rest.splitn(3, |byte| *byte == b':');
        let (Some(_), Some(day), Some(queue)) = (parts.next(), parts.next(), parts.next()) else {
            target.report.other_key(&[b"ql:s:", &rest[..]].concat());
            return Ok(());
        };
        let begin = std::str::from_utf8(day)
            .ok()
            .and_then(|text| text.parse().ok());
        let Some(begin) = begin else {
            target.report.other_key(&[b"ql:s:", &rest[..]].concat());
            return Ok(());
        };
        let name = [day, b":", queue].concat();
        if !self.days.is_new(&name) {
            return Ok(());
        }
        let kinds: [&[u8]; 3] = [b"stats", b"wait", b"run"];
        let hash = |kind: &[u8]| {
            let key = [b"ql:s:", kind, b":", &name[..]].concat();
            call(&[b"HGETALL", &key])
        };
        let values = source.request_all(kinds.map(hash).to_vec()).await?;
        let mut values = values.into_iter().map(Value::pairs);
        let mut next = || values.next().unwrap_or_default();
        let record = QlessSource::Statistics(QlessStatisticsSource {
            queue: Bytes::copy_from_slice(queue),
            day: QlessTime::new(begin),
            counters: next(),
            wait: next(),
            run: next(),
        });
        // About 150 small fields.
        send(target, RecordKind::QlessStatistics, &name, 4_096, record).await
    }

    /// Imports what must follow the jobs: tag counts, tracked jobs, and the release of jobs whose dependencies have
    /// ended.
    pub(super) async fn import_after_jobs(
        &mut self,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        for (tag, count) in scores(source, b"ql:tags").await? {
            let name = tag.clone();
            let count = whole(count);
            let record = QlessSource::TagCount { tag, count };
            send(target, RecordKind::QlessTag, &name, name.len(), record).await?;
        }
        for (jid, at) in scores(source, b"ql:tracked").await? {
            let (name, at) = (jid.clone(), QlessTime::new(at));
            let record = QlessSource::Tracked { jid, at };
            send(target, RecordKind::QlessTracked, &name, name.len(), record).await?;
        }
        target.flush().await?;
        for key in std::mem::take(&mut self.depends) {
            let waiting = scores(source, &key).await?;
            let jids = waiting.into_iter().map(|(jid, _)| jid);
            target.release(jids.collect()).await?;
        }
        Ok(())
    }
}

/// Whether a key is imported as a part of another record.
fn belongs_to_other_records(key: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 7] = [
        b"ql:j:", b"ql:q:", b"ql:f:", b"ql:t:", b"ql:w:", b"ql:th:", b"ql:s:",
    ];
    const KEYS: [&[u8]; 8] = [
        b"ql:queues",
        b"ql:paused_queues",
        b"ql:workers",
        b"ql:completed",
        b"ql:tracked",
        b"ql:failures",
        b"ql:tags",
        b"ql:config",
    ];
    KEYS.contains(&key) || PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

pub(super) async fn send(
    target: &mut Target,
    kind: RecordKind,
    name: &[u8],
    bytes: usize,
    record: QlessSource,
) -> Result<(), Failure> {
    let record = ImportRecord::Qless(Box::new(record));
    target.send(kind, name, bytes, record).await
}

/// Returns the members of a sorted set with their scores, in order. These sets have a member for each queue, worker,
/// tag or blocked job.
async fn scores(source: &mut Source, key: &[u8]) -> Result<Vec<(Bytes, f64)>, Failure> {
    let mut all = Vec::new();
    loop {
        let (first, last) = (all.len(), all.len() + PAGE - 1);
        let (first, last) = (first.to_string(), last.to_string());
        let page: Call = call(&[
            b"ZRANGE",
            key,
            first.as_bytes(),
            last.as_bytes(),
            b"WITHSCORES",
        ]);
        let page = source.request(page).await?.scores();
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

async fn import_queues(source: &mut Source, target: &mut Target) -> Result<(), Failure> {
    let paused = source
        .request(call(&[b"SMEMBERS", b"ql:paused_queues"]))
        .await?;
    let mut paused: BTreeSet<Bytes> = paused.list().into_iter().collect();
    let mut queues = Vec::new();
    for (name, at) in scores(source, b"ql:queues").await? {
        let is_paused = paused.remove(&name);
        queues.push((name, Some(QlessTime::new(at)), is_paused));
    }
    queues.extend(paused.into_iter().map(|name| (name, None, true)));
    for (name, seen_at, is_paused) in queues {
        let record = QlessSource::Queue {
            name: name.clone(),
            seen_at,
            is_paused,
        };
        send(target, RecordKind::QlessQueue, &name, name.len(), record).await?;
    }
    Ok(())
}

async fn import_recurring_job(
    key: &Bytes,
    jid: Bytes,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let fields = source.request(call(&[b"HGETALL", key])).await?.pairs();
    let queue = fields.iter().find(|(name, _)| name == "queue");
    let queue = queue.map(|(_, queue)| queue.clone()).unwrap_or_default();
    let set = [b"ql:q:", &queue[..], b"-recur"].concat();
    let next = source
        .request(call(&[b"ZSCORE", &set, &jid]))
        .await?
        .score();
    let Some(next) = next else {
        target.report.found(RecordKind::QlessRecurring);
        let reason = "no queue's set of recurring jobs has it: qless would never run it";
        target
            .report
            .refused(RecordKind::QlessRecurring, reason, &jid);
        return Ok(());
    };
    let bytes = fields.iter().map(|(name, value)| name.len() + value.len());
    let (name, bytes) = (jid.clone(), bytes.sum());
    let record = QlessSource::Recurring {
        jid,
        fields,
        next_at: QlessTime::new(next),
    };
    send(target, RecordKind::QlessRecurring, &name, bytes, record).await
}

async fn import_throttle(
    key: &Bytes,
    id: Bytes,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let calls = vec![call(&[b"HGETALL", key]), call(&[b"PTTL", key])];
    let mut values = source.request_all(calls).await?.into_iter();
    let fields = values.next().map(Value::pairs).unwrap_or_default();
    let left = values.next().map_or(-1, |value| value.number());
    let maximum = fields.iter().find(|(name, _)| name == "maximum");
    let maximum = maximum.and_then(|(_, text)| std::str::from_utf8(text).ok()?.parse().ok());
    let Some(maximum) = maximum.filter(|it: &f64| it.is_finite()) else {
        target.report.found(RecordKind::QlessThrottle);
        let reason = "its maximum is not a number";
        target
            .report
            .refused(RecordKind::QlessThrottle, reason, &id);
        return Ok(());
    };
    let name = id.clone();
    let record = QlessSource::Throttle {
        id,
        maximum,
        ends_after_ms: u64::try_from(left).ok(),
    };
    send(target, RecordKind::QlessThrottle, &name, name.len(), record).await
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "counters are whole; one that is too large becomes the largest"
)]
fn whole(count: f64) -> i64 {
    count as i64
}
