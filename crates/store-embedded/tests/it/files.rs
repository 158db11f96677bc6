//! The files: permissions, locks and refusals (`rel D11`, `rel D14`).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ganger_store::{Reader, Store, StoreError};
use ganger_store_embedded::{EmbeddedStore, backup, check};
use ganger_types::{Change, Commit, JobKey, Meta, ShardId};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn a_store_and_its_directories_are_for_their_owner_alone() {
    let directory = crate::kit::directory();
    let path = directory.path().join("a/b/1.db");
    let mut store = crate::kit::open(&path).expect("a store can be made");
    store.open().expect("it opens");
    assert_eq!(mode(&directory.path().join("a")), 0o700);
    assert_eq!(mode(&directory.path().join("a/b")), 0o700);
    for suffix in ["", "-wal", "-shm", ".lock"] {
        assert_eq!(
            mode(Path::new(&format!("{}{suffix}", path.display()))),
            0o600,
            "{suffix}"
        );
    }
}

#[test]
fn a_second_opener_is_refused_and_told_who_has_it() {
    let directory = crate::kit::directory();
    let path = crate::kit::filled(&directory);
    let store = crate::kit::open(&path).expect("nobody has it");
    let Err(error @ StoreError::InUse { .. }) = crate::kit::open(&path) else {
        panic!("two have it");
    };
    assert!(
        error
            .to_string()
            .contains(&format!("pid {}", std::process::id())),
        "{error}"
    );
    drop(store);
    crate::kit::open(&path).expect("nobody has it any more");
}

#[test]
fn a_store_of_another_shard_is_refused() {
    let directory = crate::kit::directory();
    let path = crate::kit::filled(&directory);
    let other = ShardId::new("2").expect("short");
    let refused = EmbeddedStore::create_or_open(&path, &other).map(drop);
    assert!(
        matches!(refused, Err(StoreError::OtherShard { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_newer_store_is_refused_unchanged() {
    let directory = crate::kit::directory();
    let path = crate::kit::filled(&directory);
    let connection = rusqlite::Connection::open(&path).expect("SQLite opens it");
    connection
        .pragma_update(None, "user_version", 10)
        .expect("the version can be set");
    drop(connection);
    let before = std::fs::read(&path).expect("it is there");
    let refused = crate::kit::open(&path).map(drop);
    let Err(StoreError::TooNew {
        found: 10,
        known: 9,
        ..
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(std::fs::read(&path).expect("it is there"), before);
    assert!(check(&path, |_| {}).is_err());
}

#[test]
fn a_store_of_the_format_before_opens() {
    let directory = crate::kit::directory();
    let path = crate::kit::filled(&directory);
    let whole =
        crate::kit::read_all(&mut crate::kit::open(&path).expect("it opens")).expect("it is whole");
    let connection = rusqlite::Connection::open(&path).expect("SQLite opens it");
    connection
        .execute_batch("DROP TABLE operations; DROP TABLE audit_log; PRAGMA user_version = 6")
        .expect("the version can be set");
    drop(connection);
    let seen =
        crate::kit::read_all(&mut crate::kit::open(&path).expect("it opens")).expect("it is whole");
    assert_eq!(seen, whole);
}

#[test]
fn a_file_of_somebody_else_is_refused_unchanged() {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    for content in [
        &b""[..],
        b"not a database at all, but long enough to look at",
        &[0; 4_096],
    ] {
        std::fs::write(&path, content).expect("it can be written");
        let refused = crate::kit::open(&path).map(drop);
        assert!(refused.is_err(), "{} bytes", content.len());
        assert_eq!(std::fs::read(&path).expect("it is there"), content);
    }
}

#[test]
fn a_store_half_made_is_made_again() {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    std::fs::write(directory.path().join("1.db.new"), b"half").expect("it can be written");
    let mut store = crate::kit::open(&path).expect("the rest of a creation is no obstacle");
    store.open().expect("it opens");
    assert!(!directory.path().join("1.db.new").exists());
}

#[test]
fn a_log_without_its_file_is_not_taken_for_a_new_store() {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    std::fs::write(directory.path().join("1.db-wal"), b"log").expect("it can be written");
    let refused = crate::kit::open(&path).map(drop);
    assert!(
        matches!(refused, Err(StoreError::Damaged { .. })),
        "{refused:?}"
    );
}

/// Shows `rel D12` under concurrent writes.
#[test]
fn a_backup_made_while_writing_is_one_state_and_passes_the_audit() {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    let mut store = crate::kit::open(&path).expect("a store can be made");
    crate::kit::write(&mut store, crate::kit::content());
    let opened = store.open().expect("it opens");
    let (to, from) = (directory.path().join("backup/1.db"), path.clone());
    let target = to.clone();
    let copier = std::thread::spawn(move || backup(from, target));
    let mut sequence = opened.sequence;
    while !copier.is_finished() {
        sequence += 1;
        let changes = vec![Change::PutJob(Box::new(ganger_store::suite::sample::job(
            1,
        )))];
        let commit = Commit {
            epoch: opened.epoch,
            sequence,
            meta: Meta::default(),
            changes,
        };
        store.commit(&commit.into()).expect("the writer goes on");
    }
    let report = copier
        .join()
        .expect("it does not panic")
        .expect("the copy is whole");
    assert!((opened.sequence..=sequence).contains(&report.sequence));
    let mut copy = crate::kit::open(&to).expect("the copy opens");
    assert_eq!(copy.open().expect("it opens").sequence, report.sequence);
}

#[test]
fn a_backup_opens_with_everything_committed_before_it() {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    let mut store = crate::kit::open(&path).expect("a store can be made");
    crate::kit::write(&mut store, crate::kit::content());
    let to = directory.path().join("backup.db");
    let report = backup(&path, &to).expect("the copy is made while the store is open");
    assert!(report.is_clean());
    assert_eq!(
        (report.live_jobs, report.finished_jobs),
        (crate::kit::LIVE, crate::kit::ALL - crate::kit::LIVE)
    );
    assert_eq!(mode(&to), 0o600);
    assert!(backup(&path, &to).is_err(), "nothing is written over");
    let copy = crate::kit::read_all(&mut crate::kit::open(&to).expect("the copy opens"))
        .expect("it is whole");
    assert_eq!(copy, crate::kit::read_all(&mut store).expect("it is whole"));
}

#[test]
fn a_store_in_use_can_be_audited() {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    let mut store = crate::kit::open(&path).expect("a store can be made");
    crate::kit::write(&mut store, crate::kit::content());
    store.idle().expect("there is nothing in the way");
    let report = check(&path, |_| {}).expect("it can be read");
    assert_eq!(report.findings, []);
    assert_eq!((report.leases, report.waiting), (15, 0));
}

#[test]
fn upkeep_copies_the_log_and_readers_see_the_same() {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    let mut store = crate::kit::open(&path).expect("a store can be made");
    crate::kit::write(&mut store, crate::kit::content());
    let mut reader = store.reader().expect("a reader opens");
    let before = reader.job(JobKey(7)).expect("reads");
    store.idle().expect("there is nothing in the way");
    assert_eq!(reader.job(JobKey(7)).expect("reads"), before);
    assert!(store.free_bytes().is_some_and(|free| free > 0));
}
