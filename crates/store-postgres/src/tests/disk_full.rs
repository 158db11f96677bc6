//! A database whose disk is full: what it refuses, and that it goes on once there is room.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use ganger_store::suite::sample::job;
use ganger_store::{CommitError, Reader as _, Store as _, StoreError};
use ganger_types::{Bytes, Change, Commit, Epoch, JobKey};

use super::support::{Ground, skipped, store, with_changes};
use crate::limits::Limits;

/// Size of the disk: a shard without jobs needs about a tenth.
const DISK: &str = "size=16m";
/// Bytes of a job's payload. It does not fit into the room that is left on a page.
const PAYLOAD_BYTES: u64 = 20_000;
/// Jobs that certainly do not fit into the pages that the tables have already.
const JOBS_MAX: u64 = 1_000;

/// A small disk with all tables of a shard. It is unmounted when it is dropped, before its directory is removed.
struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    /// Moves the tables of the database to a small disk. `None` if nothing can be mounted here.
    fn with_tables_of(ground: &Ground, test: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", DISK, "tmpfs"])
            .arg(directory.path())
            .output();
        let reason = match &mounted {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = reason {
            skipped(test, &format!("no disk can be mounted: {}", reason.trim()));
            return None;
        }
        let disk = Self { directory };
        let tables = disk.path().join("tables");
        fs::create_dir(&tables).expect("there is room");
        let owned = Command::new("chown")
            .arg("--reference")
            .arg(ground.instance.socket_directory())
            .args([disk.path(), &tables])
            .status();
        assert!(owned.is_ok_and(|status| status.success()));
        let place = tables.display();
        ground.sql(&format!("CREATE TABLESPACE small LOCATION '{place}'"));
        ground.sql("ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE small");
        ground.sql("ALTER INDEX ALL IN TABLESPACE pg_default SET TABLESPACE small");
        Some(disk)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut filler = fs::File::create(self.filler()).expect("a name fits");
        let page = [0; 4096];
        loop {
            match filler.write(&page) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Frees the room that [`SmallDisk::fill`] took.
    fn make_room(&self) {
        fs::remove_file(self.filler()).expect("it is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Files that the server still has open do not keep the mount.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.path())
            .stderr(Stdio::null())
            .status();
    }
}

/// A commit of job number `sequence` with a payload that does not compress.
fn large(epoch: Epoch, sequence: u64) -> Arc<Commit> {
    let mut state = sequence + 1;
    let payload = (0..PAYLOAD_BYTES).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    });
    let changes = vec![
        Change::PutJob(Box::new(job(sequence))),
        Change::PutPayload {
            key: JobKey(sequence),
            payload: Bytes::from(payload.collect::<Vec<u8>>()),
        },
    ];
    with_changes(epoch, sequence, changes)
}

fn is_full(refused: &CommitError) -> bool {
    matches!(refused, CommitError::NotApplied { is_full: true, .. })
}

/// Commits until there is no room, makes room, and goes on, over the same connections.
fn fill_and_go_on(test: &str, limits: Limits) {
    let Some(mut ground) = Ground::start(test) else {
        return;
    };
    let number = ground.add_shard();
    let Some(disk) = SmallDisk::with_tables_of(&ground, test) else {
        return;
    };
    let mut settings = ground.settings();
    settings.limits = limits;
    let mut store = store(settings, number);
    let epoch = store.open().expect("there is room").epoch;
    let mut last = 0;
    while last < 10 {
        last += 1;
        let committed = store.commit(&large(epoch, last));
        committed.expect("there is room");
    }
    disk.fill();
    let refused = loop {
        assert!(last < JOBS_MAX, "the disk is never full");
        match store.commit(&large(epoch, last + 1)) {
            Ok(()) => last += 1,
            Err(refused) => break refused,
        }
    };
    assert!(is_full(&refused), "{refused:?}");
    // It is refused for as long as there is no room, and what was acknowledged can be read.
    let refused = store.commit(&large(epoch, last + 1));
    assert!(refused.as_ref().is_err_and(is_full), "{refused:?}");
    let mut reader = store.reader().expect("a reader opens");
    for key in 1..=last {
        assert!(reader.job(JobKey(key)).expect("reads").is_some(), "{key}");
    }
    assert!(reader.job(JobKey(last + 1)).expect("reads").is_none());
    disk.make_room();
    for _ in 0..20 {
        let committed = store.commit(&large(epoch, last + 1));
        committed.expect("the same owner goes on");
        last += 1;
    }
    let opened = ground.store(number).open().expect("there is room");
    assert_eq!(opened.sequence, last, "nothing was lost, and nothing added");
    let mut next = ground.store(number);
    next.open().expect("there is room");
    let mut rows = 0;
    next.load(&mut |_| rows += 1).expect("it loads");
    assert_eq!(rows, last);
}

#[test]
fn a_commit_on_a_full_disk_is_refused_as_full_and_the_store_goes_on() {
    fill_and_go_on("a_commit_on_a_full_disk", Limits::default());
}

#[test]
fn a_large_commit_on_a_full_disk_is_refused_as_full_and_the_store_goes_on() {
    let limits = Limits {
        record_changes: 0,
        ..Limits::default()
    };
    fill_and_go_on("a_large_commit_on_a_full_disk", limits);
}

/// The rows of the log's tail find no room.
#[test]
fn a_shard_that_is_taken_over_on_a_full_disk_says_so_and_opens_once_there_is_room() {
    let test = "a_shard_that_is_taken_over_on_a_full_disk";
    let Some(mut ground) = Ground::start(test) else {
        return;
    };
    let number = ground.add_shard();
    let Some(disk) = SmallDisk::with_tables_of(&ground, test) else {
        return;
    };
    let mut settings = ground.settings();
    settings.limits.has_row_thread = false;
    let mut owner = store(settings, number);
    let epoch = owner.open().expect("there is room").epoch;
    for sequence in 1..=50 {
        let committed = owner.commit(&large(epoch, sequence));
        committed.expect("there is room");
    }
    drop(owner);
    disk.fill();
    let mut next = ground.store(number);
    for _ in 0..2 {
        let refused = next.open().expect_err("its rows need room");
        assert!(matches!(refused, StoreError::Full { .. }), "{refused:?}");
    }
    disk.make_room();
    let opened = next.open().expect("there is room");
    assert_eq!(opened.sequence, 50);
    let mut rows = 0;
    next.load(&mut |_| rows += 1).expect("it loads");
    assert_eq!(rows, 50);
}
