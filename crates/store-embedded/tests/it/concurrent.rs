//! Readers, the committing thread and the thread that writes the tables at the same time: a reader sees everything that
//! was acknowledged before it asked, wherever the row thread is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ganger_store::suite::sample::{ended, job, lease};
use ganger_store::{Reader, Store};
use ganger_store_embedded::{EmbeddedReader, Limits, check};
use ganger_types::{Bytes, Change, JobKey, JobState, Outcome};

/// Commits of a job's life, in order. A reader must see the effect of at least those that were acknowledged.
const STAGES: u64 = 4;
const JOBS: u64 = 400;

fn changes(key: u64, stage: u64) -> Vec<Change> {
    match stage {
        0 => vec![
            Change::PutJob(Box::new(job(key))),
            Change::PutPayload {
                key: JobKey(key),
                payload: Bytes::from(format!("payload {key}")),
            },
        ],
        1 => vec![Change::PutLease(Box::new(lease(key, "w")))],
        2 => {
            let mut record = Box::new(ended(job(key), Outcome::Succeeded, key, 5));
            let end = record.finished.as_mut().expect("it has ended");
            end.result_bytes = Some(6);
            let result = Some(Bytes::from_static(b"result"));
            vec![Change::FinishJob { record, result }]
        }
        _ => vec![Change::RemoveJob(JobKey(key))],
    }
}

/// Returns the stage that a job is in, by everything that a reader says of it.
fn seen_stage(reader: &mut EmbeddedReader, key: u64) -> Option<u64> {
    let found = reader.job(JobKey(key)).expect("it can be read");
    let found = found?;
    Some(match found.record.state {
        JobState::Running => {
            assert!(found.lease.is_some(), "a running job has its lease");
            1
        }
        state if state.is_terminal() => {
            assert!(found.lease.is_none(), "a finished job has no lease");
            2
        }
        _ => {
            assert!(found.lease.is_none(), "a ready job has no lease");
            0
        }
    })
}

/// Reads the newest job over and over. `acknowledged` counts the commits of all jobs.
fn read_all_the_time(mut reader: EmbeddedReader, acknowledged: &AtomicU64, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        let before = acknowledged.load(Ordering::Acquire);
        if before == 0 {
            continue;
        }
        let (key, stage) = ((before - 1) / STAGES, (before - 1) % STAGES);
        let seen = seen_stage(&mut reader, key);
        let payload = reader.payload(JobKey(key)).expect("it can be read");
        let result = reader.result(JobKey(key)).expect("it can be read");
        let after = acknowledged.load(Ordering::Acquire);
        let may_be_gone = after >= (key + 1) * STAGES - 1;
        match seen {
            Some(seen) => assert!(
                seen >= stage,
                "job {key} was at {stage} and is seen at {seen}"
            ),
            None => assert!(may_be_gone, "job {key} at {stage} is not seen"),
        }
        assert!(payload.is_some() || may_be_gone, "job {key} has no payload");
        assert!(
            stage != 2 || result.is_some() || may_be_gone,
            "job {key} has no result"
        );
    }
}

#[test]
fn readers_see_what_was_acknowledged_whatever_the_row_thread_does() {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    let limits = Limits {
        log_pages: 60,
        waiting_commits: 7,
        waiting_for: Duration::from_micros(300),
        segment_bytes: 8 << 10,
        segments_max: 3,
        ..Limits::default()
    };
    let mut written = crate::kit::Written::start(&path, limits);
    let (acknowledged, is_over) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let reader = written.store.reader().expect("a reader opens");
            let (acknowledged, is_over) = (Arc::clone(&acknowledged), Arc::clone(&is_over));
            thread::spawn(move || read_all_the_time(reader, &acknowledged, &is_over))
        })
        .collect();
    for number in 0..JOBS * STAGES {
        written.commit(changes(number / STAGES, number % STAGES));
        acknowledged.store(number + 1, Ordering::Release);
    }
    is_over.store(true, Ordering::Release);
    for reader in readers {
        reader.join().expect("every read was right");
    }
    drop(written);
    let report = check(&path, |_| {}).expect("it can be read");
    let of_rows = |table: &str| !matches!(table, "queues" | "tag_counts");
    let findings = report.findings.iter().filter(|found| of_rows(&found.table));
    assert_eq!(findings.count(), 0, "{:?}", report.findings);
    assert_eq!((report.live_jobs, report.finished_jobs), (0, 0));
}
