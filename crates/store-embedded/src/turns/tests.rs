//! Tests of the turn log by itself.

use std::path::Path;

use ganger_types::{Change, JobKey, ShardId};
use proptest::prelude::*;

use super::record::SegmentBytes;
use super::*;
use crate::fault::Fault;
use crate::meta::Header;

const IDENTITY: [u8; 16] = [7; 16];
const SEGMENT_BYTES: u64 = 64 << 10;

/// Opens the log of a store whose tables have everything up to `sequence`.
fn open(store: &Path, sequence: u64) -> TurnLog {
    TurnLog::open(store, IDENTITY, SEGMENT_BYTES, sequence).expect("it can be made")
}

fn commit(sequence: u64) -> Commit {
    Commit {
        sequence,
        changes: vec![Change::RemoveJob(JobKey(sequence))],
        ..Commit::default()
    }
}

/// Makes a commit of about `bytes` bytes.
fn wide(sequence: u64, bytes: usize) -> Commit {
    Commit {
        sequence,
        changes: vec![Change::PutPayload {
            key: JobKey(1),
            payload: vec![b'x'; bytes].into(),
        }],
        ..Commit::default()
    }
}

fn append(log: &mut TurnLog, commit: &Commit, in_tables: u64) -> Appended {
    log.append(commit, in_tables).expect("it can be written")
}

fn is_flushed(appended: Appended) -> bool {
    matches!(appended, Appended::Flushed(_))
}

/// Returns the header of tables that have everything up to `sequence`.
fn header(log: LogSize, sequence: u64) -> Header {
    Header {
        sequence,
        log,
        ..Header::new(&ShardId::default(), IDENTITY)
    }
}

fn read(store: &Path, log: LogSize, in_tables: u64) -> Result<Vec<u64>, Fault> {
    let content = TurnLogContent::read(store, &header(log, in_tables)).map_err(Fault::Store)?;
    let commits = content.commits_after(in_tables)?;
    Ok(commits.iter().map(|commit| commit.sequence).collect())
}

#[test]
fn a_log_that_was_opened_again_says_up_to_where_the_tables_were() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let store = directory.path().join("1.db");
    let mut log = open(&store, 3);
    for sequence in [4, 5, 6] {
        assert!(is_flushed(append(&mut log, &commit(sequence), 3)));
    }
    let size = log.size();
    assert_eq!(read(&store, size, 4).expect("all are there"), [5, 6]);
    assert!(read(&store, size, 2).is_err(), "3 is missing");
    let mut log = open(&store, 6);
    assert_eq!(read(&store, size, 6).expect("all are there"), [0; 0]);
    assert!(read(&store, size, 3).is_err(), "4 is not there any more");
    // The next commit overwrites the stamp.
    assert!(is_flushed(append(&mut log, &commit(7), 6)));
    assert_eq!(read(&store, size, 6).expect("all are there"), [7]);
    open(&store, 9);
    assert!(read(&store, size, 7).is_err(), "8 and 9 were in the tables");
}

#[test]
fn a_segment_is_written_over_only_when_the_tables_have_all_of_it() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let store = directory.path().join("1.db");
    let mut log = open(&store, 0);
    let mut next = 1;
    let mut fill = |log: &mut TurnLog, in_tables| {
        let first = next;
        while is_flushed(append(log, &wide(next, 10_000), in_tables)) {
            next += 1;
        }
        first..next
    };
    assert_eq!(fill(&mut log, 0), 1..7);
    let made = log.plan_segment(3).expect("it may have three").make();
    log.add(made.expect("there is room"));
    assert_eq!(fill(&mut log, 0), 7..13);
    assert_eq!(fill(&mut log, 5), 13..13, "6 is not in the tables");
    assert_eq!(fill(&mut log, 6), 13..19, "the first segment again");
    let size = log.size();
    assert_eq!(size.segments, 2);
    let all: Vec<u64> = (9..19).collect();
    assert_eq!(read(&store, size, 8).expect("all are there"), all);
    assert!(read(&store, size, 5).is_err(), "6 is not there any more");
    assert_eq!(append(&mut log, &wide(19, 70_000), 18), Appended::TooLarge);
}

#[test]
fn there_are_no_more_segments_than_allowed() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let store = directory.path().join("1.db");
    let mut log = open(&store, 0);
    for _ in 0..2 {
        let made = log.plan_segment(3).expect("it may have three").make();
        log.add(made.expect("there is room"));
    }
    assert!(log.plan_segment(3).is_none());
    assert!(is_there(&store));
    remove_from(&store, 2).expect("they can be removed");
    assert!(segment_path(&store, 1).exists());
    assert!(!segment_path(&store, 2).exists());
    remove_from(&store, 1).expect("it can be removed");
    assert!(!is_there(&store));
}

#[test]
fn a_record_of_one_segment_is_no_record_in_another() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let store = directory.path().join("1.db");
    let mut log = open(&store, 0);
    let made = log.plan_segment(3).expect("it may have three").make();
    log.add(made.expect("there is room"));
    assert!(is_flushed(append(&mut log, &commit(1), 0)));
    let (first, second) = (segment_path(&store, 1), segment_path(&store, 2));
    std::fs::copy(first, second).expect("files can be copied");
    assert_eq!(read(&store, log.size(), 0).expect("once"), [1]);
}

proptest! {
    #[test]
    fn any_bytes_are_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0..300_usize) {
        let at = at.min(bytes.len());
        bytes.splice(at..at, *b"turn");
        let segment = SegmentBytes { bytes: &bytes, segment: 0, identity: &IDENTITY };
        prop_assert!(segment.find_after(0).0.is_empty());
    }
}
