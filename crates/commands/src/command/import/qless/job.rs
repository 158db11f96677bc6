//! Imports jobs of qless, each with its entries in sets and lists.

use ganger_client::Bytes;
use ganger_client::import::{QlessJobSource, QlessSet, QlessSource, QlessTime};

use super::send;
use crate::command::import::batch::{RECORD_BYTES_MAX, Target};
use crate::command::import::report::RecordKind;
use crate::command::import::source::{Call, Source, call};
use crate::command::import::value::Value;
use crate::exit::Failure;

/// Maximum bytes of jobs that are read at once.
const READ_BYTES: usize = 8 << 20;
/// Approximate bytes of a job besides its data.
const OVERHEAD_BYTES: usize = 1 << 10;

/// The sets of a queue, with the suffixes of their keys.
const SETS: [(QlessSet, &[u8]); 5] = [
    (QlessSet::Work, b"-work"),
    (QlessSet::Locks, b"-locks"),
    (QlessSet::Scheduled, b"-scheduled"),
    (QlessSet::Depends, b"-depends"),
    (QlessSet::Throttled, b"-throttled"),
];

/// Imports these jobs, in batches of bounded size.
pub(super) async fn import(
    jids: Vec<Bytes>,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let lengths = jids
        .iter()
        .map(|jid| call(&[b"HSTRLEN", &key(jid), b"data"]));
    let lengths = source.request_all(lengths.collect()).await?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for (jid, length) in jids.into_iter().zip(lengths) {
        let size = length.size() + OVERHEAD_BYTES;
        if size > RECORD_BYTES_MAX {
            target.report.found(RecordKind::QlessJob);
            let reason = "its data is larger than 4 MiB, which is the limit of a record";
            target.report.refused(RecordKind::QlessJob, reason, &jid);
            continue;
        }
        if bytes + size > READ_BYTES {
            import_batch(std::mem::take(&mut batch), source, target).await?;
            bytes = 0;
        }
        bytes += size;
        batch.push(jid);
    }
    import_batch(batch, source, target).await
}

fn key(jid: &[u8]) -> Vec<u8> {
    [b"ql:j:", jid].concat()
}

/// Number of commands that read a job before its scores are known.
const CALLS_PER_JOB: usize = 5;

async fn import_batch(
    jids: Vec<Bytes>,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let mut calls = Vec::with_capacity(jids.len() * CALLS_PER_JOB);
    for jid in &jids {
        let part = |end: &[u8]| [&key(jid)[..], end].concat();
        calls.push(call(&[b"HGETALL", &key(jid)]));
        calls.push(call(&[b"LRANGE", &part(b"-history"), b"0", b"-1"]));
        calls.push(call(&[b"SMEMBERS", &part(b"-dependencies")]));
        calls.push(call(&[b"SMEMBERS", &part(b"-dependents")]));
        calls.push(call(&[b"ZSCORE", b"ql:completed", jid]));
    }
    let mut values = source.request_all(calls).await?.into_iter();
    let mut drafts = Vec::with_capacity(jids.len());
    for jid in jids {
        let mut next = || values.next().unwrap_or(Value::Nil);
        let job = QlessJobSource {
            jid,
            fields: next().pairs(),
            history: next().list(),
            dependencies: next().list(),
            dependents: next().list(),
            completed_at: next().score().map(QlessTime::new),
            ..QlessJobSource::default()
        };
        // A job without fields was deleted after its key was listed.
        if !job.fields.is_empty() {
            drafts.push(Draft::new(job));
        }
    }
    add_scores_and_send(drafts, source, target).await
}

/// A job whose scores are not known yet.
struct Draft {
    job: QlessJobSource,
    tags: Vec<Bytes>,
    throttles: Vec<Bytes>,
}

impl Draft {
    fn new(job: QlessJobSource) -> Self {
        Self {
            tags: strings(field(&job, "tags")),
            throttles: strings(field(&job, "throttles")),
            job,
        }
    }

    /// Returns commands for the scores of the job: in the sets of its queue, its worker's list, its tags, and two sets
    /// of each throttle.
    fn calls(&self) -> Vec<Call> {
        let jid = &self.job.jid;
        let score = |parts: &[&[u8]]| call(&[b"ZSCORE", &parts.concat(), jid]);
        let queue = field(&self.job, "queue");
        let worker = field(&self.job, "worker");
        let mut calls: Vec<_> = SETS
            .iter()
            .map(|(_, end)| score(&[b"ql:q:", queue, end]))
            .collect();
        calls.push(score(&[b"ql:w:", worker, b":jobs"]));
        calls.extend(self.tags.iter().map(|tag| score(&[b"ql:t:", tag])));
        for throttle in &self.throttles {
            calls.push(score(&[b"ql:th:", throttle, b"-locks"]));
            calls.push(score(&[b"ql:th:", throttle, b"-pending"]));
        }
        calls
    }

    fn finish(self, values: &mut impl Iterator<Item = Value>) -> QlessJobSource {
        let mut next = || values.next().and_then(Value::score);
        let Self {
            mut job,
            tags,
            throttles,
        } = self;
        for (set, _) in SETS {
            job.places.extend(next().map(|score| (set, score)));
        }
        job.listed_until = next().map(QlessTime::new);
        for tag in tags {
            job.tagged
                .extend(next().map(|at| (tag, QlessTime::new(at))));
        }
        for throttle in throttles {
            let (held, waits) = (next(), next());
            let since = |at: f64| (throttle.clone(), QlessTime::new(at));
            job.holds.extend(held.map(since));
            job.pending.extend(waits.map(since));
        }
        job
    }
}

async fn add_scores_and_send(
    drafts: Vec<Draft>,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let calls: Vec<Call> = drafts.iter().flat_map(Draft::calls).collect();
    let mut values = source.request_all(calls).await?.into_iter();
    for draft in drafts {
        let job = draft.finish(&mut values);
        let bytes = size(&job);
        let jid = job.jid.clone();
        send(
            target,
            RecordKind::QlessJob,
            &jid,
            bytes,
            QlessSource::Job(job),
        )
        .await?;
    }
    Ok(())
}

fn field<'a>(job: &'a QlessJobSource, name: &str) -> &'a [u8] {
    let found = job.fields.iter().find(|(key, _)| key == name);
    found.map_or(&b""[..], |(_, value)| value)
}

/// Returns the strings of a JSON list, numbers as the script writes them. Empty if the JSON is not a list: the server
/// then refuses the record with the reason.
fn strings(json: &[u8]) -> Vec<Bytes> {
    let list: Vec<serde_json::Value> = serde_json::from_slice(json).unwrap_or_default();
    let texts = list.into_iter().filter_map(|value| match value {
        serde_json::Value::String(text) => Some(Bytes::from(text)),
        serde_json::Value::Number(number) => Some(Bytes::from(number.to_string())),
        _ => None,
    });
    texts.collect()
}

fn size(job: &QlessJobSource) -> usize {
    let fields = job
        .fields
        .iter()
        .map(|(name, value)| name.len() + value.len());
    let lists = [&job.history, &job.dependencies, &job.dependents];
    let lists = lists.iter().flat_map(|list| list.iter()).map(Bytes::len);
    fields.sum::<usize>() + lists.sum::<usize>() + job.jid.len()
}

#[cfg(test)]
mod tests {
    use super::strings;

    #[test]
    fn tags_are_texts_and_numbers() {
        assert_eq!(strings(br#"["a",1,"\u00e9"]"#), ["a", "1", "\u{e9}"]);
        for none in [&b"{}"[..], b"", b"[", b"5"] {
            assert!(strings(none).is_empty());
        }
    }
}
