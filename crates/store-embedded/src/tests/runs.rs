//! Jobs with consecutive numbers in one commit, which the store writes together where they change in the same way.

use std::path::Path;

use ganger_store::suite::sample::{ended, job, lease};
use ganger_store::{Reader, Store};
use ganger_types::{Bytes, Change, Commit, Epoch, JobKey, JobRecord, Meta, Outcome, ShardId, Tag};

use crate::EmbeddedStore;

struct Script {
    store: EmbeddedStore,
    epoch: Epoch,
    sequence: u64,
}

impl Script {
    fn start(path: &Path) -> Self {
        let mut store = EmbeddedStore::create_or_open(path, &ShardId::default()).expect("made");
        let epoch = store.open().expect("opens").epoch;
        Self {
            store,
            epoch,
            sequence: 0,
        }
    }

    fn commit(&mut self, changes: Vec<Change>) {
        self.sequence += 1;
        let commit = Commit {
            epoch: self.epoch,
            sequence: self.sequence,
            meta: Meta::default(),
            changes,
        };
        self.store.commit(&commit.into()).expect("commits");
    }
}

/// Makes a job with a tag, which has entries in the secondary index.
fn tagged(key: u64) -> JobRecord {
    JobRecord {
        tags: vec![Tag::from_static("red")],
        ..job(key)
    }
}

/// Makes a job; job 3 of each ten is tagged.
fn some_job(key: u64) -> JobRecord {
    if key % 10 == 3 { tagged(key) } else { job(key) }
}

fn put(key: u64) -> [Change; 2] {
    let payload = Bytes::from_static(b"payload");
    let record = Box::new(some_job(key));
    let key = JobKey(key);
    [Change::PutJob(record), Change::PutPayload { key, payload }]
}

fn finish(key: u64) -> Change {
    let result = Bytes::from(format!("result {key}"));
    let mut record = Box::new(ended(some_job(key), Outcome::Succeeded, key, 5));
    let end = record.finished.as_mut().expect("it has ended");
    end.result_bytes = u64::try_from(result.len()).ok();
    let result = Some(result);
    Change::FinishJob { record, result }
}

fn remove(key: u64) -> Change {
    Change::RemoveJob(JobKey(key))
}

/// The numbers that have a record, and those that have a payload.
fn there(script: &Script, keys: std::ops::Range<u64>) -> (Vec<u64>, Vec<u64>) {
    let mut reader = script.store.reader().expect("reads");
    let (mut records, mut payloads) = (Vec::new(), Vec::new());
    for key in keys {
        if reader.job(JobKey(key)).expect("reads").is_some() {
            records.push(key);
        }
        if reader.payload(JobKey(key)).expect("reads").is_some() {
            payloads.push(key);
        }
    }
    (records, payloads)
}

/// Expects no findings about rows and counts of jobs, apart from statistics that only an engine keeps.
fn expect_clean(path: &Path, script: Script) {
    drop(script);
    let mut report = crate::check(path, |_| {}).expect("reads");
    let is_of_an_engine = |table: &str| matches!(table, "queues" | "tag_counts");
    let findings = &mut report.findings;
    findings.retain(|finding| !is_of_an_engine(&finding.table));
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn neighbours_that_end_together_leave_neither_live_rows_nor_leases() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("1.db");
    let mut script = Script::start(&path);
    script.commit((1..9).flat_map(put).collect());
    let leases = [1, 3, 4, 7].map(|key| Change::PutLease(Box::new(lease(key, "w"))));
    script.commit(leases.into());
    // 5 stays, so there are two runs; 3 is tagged; 9 comes and ends in the same commit.
    let mut changes: Vec<_> = [1, 2, 3, 4, 6, 7, 8].map(finish).into();
    changes.extend(put(9));
    changes.push(finish(9));
    script.commit(changes);
    let mut reader = script.store.reader().expect("reads");
    for key in (1..10).filter(|key| *key != 5) {
        let found = reader.job(JobKey(key)).expect("reads").expect("there");
        assert!(found.record.finished.is_some(), "job {key}");
        let result = reader.result(JobKey(key)).expect("reads");
        assert_eq!(result, Some(Bytes::from(format!("result {key}"))));
    }
    let stays = reader.job(JobKey(5)).expect("reads").expect("there");
    assert!(stays.record.finished.is_none());
    expect_clean(&path, script);
}

#[test]
fn neighbours_of_every_kind_are_removed_and_nobody_else() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("1.db");
    let mut script = Script::start(&path);
    script.commit((1..20).flat_map(put).collect());
    script.commit(vec![Change::PutLease(Box::new(lease(5, "w")))]);
    // Plain ones that have ended; among 10 to 16 a tagged one that has ended, live ones and a leased one.
    script.commit([1, 2, 7, 8, 10, 13, 15].map(finish).into());
    script.commit([1, 2].map(remove).into());
    script.commit([3, 4, 5, 10, 11, 12, 13, 14, 15, 16].map(remove).into());
    let left: Vec<u64> = vec![6, 7, 8, 9, 17, 18, 19];
    assert_eq!(there(&script, 1..20), (left.clone(), left));
    expect_clean(&path, script);
}
