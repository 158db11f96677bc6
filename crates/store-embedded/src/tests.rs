//! Tests of the store's inside: a full disk, and rows that are written together.

mod runs;

use ganger_store::suite::sample::job;
use ganger_store::{CommitError, Loaded, Reader, Store};
use ganger_types::{Bytes, Change, Commit, Epoch, JobKey, Meta, ShardId};

use crate::load::load;
use crate::{EmbeddedStore, Limits};

fn commit(epoch: Epoch, sequence: u64) -> Commit {
    let payload = Bytes::from(vec![b'x'; 100_000]);
    let changes = vec![
        Change::PutJob(Box::new(job(sequence))),
        Change::PutPayload {
            key: JobKey(sequence),
            payload,
        },
    ];
    Commit {
        epoch,
        sequence,
        meta: Meta::default(),
        changes,
    }
}

#[test]
fn every_flush_is_counted_once() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("1.db");
    let limits = Limits {
        // The payload of `commit` does not fit.
        segment_bytes: 1 << 16,
        has_row_thread: false,
        ..Limits::default()
    };
    let mut store = EmbeddedStore::with_limits(&path, &ShardId::default(), limits).expect("made");
    let epoch = store.open().expect("opens").epoch;
    let opened = store.flushes();
    assert!(opened > 0, "the new header was flushed");
    let mut small = commit(epoch, 1);
    small.changes.truncate(1);
    store.commit(&small.into()).expect("there is space");
    assert_eq!(store.flushes(), opened + 1, "into the turn log");
    store
        .commit(&commit(epoch, 2).into())
        .expect("there is space");
    assert_eq!(store.flushes(), opened + 2, "into the tables");
}

fn limit_pages(store: &EmbeddedStore, pages: i64) {
    let set = store.on_connection(|connection| {
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
    });
    set.expect("the limit can be set");
}

/// Number of pages that the tables have.
fn pages(store: &EmbeddedStore) -> i64 {
    let count = store.on_connection(|connection| {
        connection.query_row("PRAGMA page_count", [], |row| row.get(0))
    });
    count.expect("the pages can be counted")
}

/// Shows `rel D9` (f15) on a full disk.
#[test]
fn a_full_disk_refuses_the_commit_and_the_store_goes_on_when_there_is_space() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("1.db");
    // Every commit goes into the tables at once: the limit below is of theirs.
    let limits = Limits {
        segment_bytes: 0,
        ..Limits::default()
    };
    let shard = ShardId::default();
    let mut store = EmbeddedStore::with_limits(&path, &shard, limits).expect("made");
    let epoch = store.open().expect("opens").epoch;
    store
        .commit(&commit(epoch, 1).into())
        .expect("there is space");
    // Room for less than a second payload.
    limit_pages(&store, pages(&store) + 10);
    let refused = store.commit(&commit(epoch, 2).into());
    assert!(
        matches!(refused, Err(CommitError::NotApplied { is_full: true, .. })),
        "{refused:?}"
    );
    let refused = store.commit(&commit(epoch, 2).into());
    assert!(
        matches!(refused, Err(CommitError::NotApplied { is_full: true, .. })),
        "{refused:?}"
    );
    let small = Commit {
        epoch,
        sequence: 2,
        meta: Meta::default(),
        changes: vec![Change::RemoveJob(JobKey(1))],
    };
    store
        .commit(&small.into())
        .expect("what frees space still goes");
    limit_pages(&store, 1_000_000);
    store
        .commit(&commit(epoch, 3).into())
        .expect("there is space again");
    drop(store);
    let mut store = EmbeddedStore::create_or_open(&path, &ShardId::default()).expect("there");
    assert_eq!(store.open().expect("opens").sequence, 3);
    let mut jobs = Vec::new();
    let mut each = |row| {
        if let Loaded::Job(job) = row {
            jobs.push(job.key);
        }
    };
    store.load(&mut each).expect("loads");
    assert_eq!(jobs, [JobKey(3)]);
}

/// On a full disk rows are loaded inside a transaction that the store takes back at the end.
#[test]
fn rows_are_loaded_inside_a_transaction_that_somebody_else_began() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("1.db");
    let limits = Limits {
        has_row_thread: false,
        ..Limits::default()
    };
    let shard = ShardId::default();
    let mut store = EmbeddedStore::with_limits(&path, &shard, limits).expect("made");
    let epoch = store.open().expect("opens").epoch;
    store
        .commit(&commit(epoch, 1).into())
        .expect("there is space");
    store.idle().expect("there is space");
    let mut rows = 0;
    store.on_connection(|connection| {
        connection.execute_batch("BEGIN IMMEDIATE").expect("begins");
        load(connection, &mut |_| rows += 1).expect("loads");
        connection.execute_batch("ROLLBACK").expect("ends");
    });
    assert_eq!(rows, 1);
}

/// Shows `rel D6` for the thread that writes the tables: what it cannot write stops the store, and stays in the turn log.
#[test]
fn a_store_whose_tables_cannot_be_written_takes_no_further_commit_and_keeps_what_it_took() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("1.db");
    let shard = ShardId::default();
    let mut store = EmbeddedStore::create_or_open(&path, &shard).expect("made");
    let epoch = store.open().expect("opens").epoch;
    let rename = |store: &EmbeddedStore, from: &str, to: &str| {
        let sql = format!("ALTER TABLE {from} RENAME TO {to}");
        let done = store.on_connection(|connection| connection.execute_batch(&sql));
        done.expect("the table can be renamed");
    };
    rename(&store, "jobs", "away");
    store
        .commit(&commit(epoch, 1).into())
        .expect("the turn log takes it");
    // The thread tries, fails, and that is reported here.
    while store.idle().is_ok() {
        std::thread::yield_now();
    }
    let refused = store.commit(&commit(epoch, 2).into());
    assert!(
        matches!(refused, Err(CommitError::Unknown(_))),
        "{refused:?}"
    );
    assert!(store.open().is_err(), "it still cannot be written");
    let connection = rusqlite::Connection::open(&path).expect("SQLite opens it");
    connection
        .execute_batch("ALTER TABLE away RENAME TO jobs")
        .expect("the table can be renamed");
    drop(connection);
    assert_eq!(store.open().expect("it opens").sequence, 1);
    let mut reader = store.reader().expect("a reader opens");
    assert!(reader.job(JobKey(1)).expect("reads").is_some());
}
