//! The turn log: nothing in it is missed, whatever happens to the write-ahead log (`rel D1`, `rel D7`, `rel D8`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use ganger_store::suite::StoreFixture;
use ganger_store::suite::sample::job;
use ganger_store::{Reader, Store, StoreError};
use ganger_store_embedded::{EmbeddedStore, Limits, backup, check};
use ganger_types::{Bytes, Change, JobKey, ShardId};
use proptest::prelude::*;
use tempfile::TempDir;

/// Makes stores that are left as by a machine that stops; they continue in a copy of their files.
#[derive(Default)]
struct Stopped {
    directories: Vec<TempDir>,
}

impl StoreFixture for Stopped {
    type Store = EmbeddedStore;

    fn fresh(&mut self) -> EmbeddedStore {
        let directory = crate::kit::directory();
        let path = directory.path().join("1.db");
        self.directories.push(directory);
        EmbeddedStore::create_or_open(path, &ShardId::default()).expect("a store can be made")
    }

    fn again(&mut self, store: EmbeddedStore) -> EmbeddedStore {
        let directory = crate::kit::directory();
        let copy = crate::kit::freeze(store.path(), &directory);
        self.directories.push(directory);
        EmbeddedStore::create_or_open(copy, &ShardId::default()).expect("the store is there")
    }
}

mod stopped {
    use super::Stopped;

    ganger_store::suite_tests!(Stopped::default());
}

fn turns(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-turns", path.display()))
}

fn wal(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-wal", path.display()))
}

/// Makes a store that is filled and not closed; returns it with its content.
fn stopped() -> (TempDir, PathBuf, crate::kit::StoreContent) {
    let (directory, frozen) = (crate::kit::directory(), crate::kit::directory());
    let path = directory.path().join("1.db");
    let mut store = crate::kit::open(&path).expect("a store can be made");
    crate::kit::write(&mut store, crate::kit::content());
    let copy = crate::kit::freeze(&path, &frozen);
    drop(store);
    let whole = crate::kit::read_all(&mut crate::kit::open(&path).expect("whole")).expect("whole");
    (frozen, copy, whole)
}

#[test]
fn a_store_that_is_closed_is_one_file() {
    let directory = crate::kit::directory();
    let path = crate::kit::filled(&directory);
    assert!(path.exists());
    assert!(!turns(&path).exists());
    assert!(!wal(&path).exists());
}

#[test]
fn a_store_that_was_not_closed_has_all_that_was_committed() {
    let (_directory, path, whole) = stopped();
    assert!(turns(&path).exists());
    let report = check(&path, |_| {}).expect("it can be read");
    assert_eq!(report.findings, []);
    assert_eq!(
        (report.live_jobs, report.leases, report.waiting),
        (crate::kit::LIVE, 15, 0)
    );
    let seen =
        crate::kit::read_all(&mut crate::kit::open(&path).expect("it opens")).expect("it is whole");
    assert_eq!(seen, whole);
}

#[test]
fn an_audit_of_a_store_that_was_not_closed_changes_nothing() {
    let (directory, path, _) = stopped();
    let files = |_: &Path| {
        let mut files: Vec<_> = ["", "-wal", "-turns"]
            .map(|suffix| PathBuf::from(format!("{}{suffix}", path.display())))
            .into_iter()
            .map(|file| std::fs::read(file).expect("it is there"))
            .collect();
        // SQLite has appended this to its log and rolled it back.
        files[1].truncate(0);
        files
    };
    let before = files(directory.path());
    let first = check(&path, |_| {}).expect("it can be read");
    assert!(files(directory.path()) == before);
    assert_eq!(check(&path, |_| {}).expect("it can be read"), first);
}

#[test]
fn a_backup_of_a_store_that_was_not_closed_has_all_that_was_committed() {
    let (directory, path, whole) = stopped();
    let to = directory.path().join("backup.db");
    let report = backup(&path, &to).expect("a copy can be made");
    assert_eq!(report.findings, []);
    let seen =
        crate::kit::read_all(&mut crate::kit::open(&to).expect("it opens")).expect("it is whole");
    assert_eq!(seen, whole);
}

#[test]
fn an_audit_of_a_store_in_use_says_what_it_could_not_wait_for() {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    let mut store = crate::kit::open_with(&path, crate::kit::WITHOUT_THREAD()).expect("made");
    crate::kit::write(&mut store, crate::kit::content());
    let report = check(&path, |_| {}).expect("it can be read");
    assert!(
        report.waiting > 0,
        "nobody has written them into the tables"
    );
    store.idle().expect("there is nothing in the way");
    assert_eq!(check(&path, |_| {}).expect("it can be read").waiting, 0);
}

#[test]
fn a_flipped_bit_in_the_turn_log_is_reported_unless_it_is_in_the_torn_end() {
    let (_directory, path, whole) = stopped();
    let bytes = std::fs::read(turns(&path)).expect("the log is there");
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("it is used");
    let mut noticed = 0;
    for place in (0..used * 9 / 10).step_by(used / 70) {
        let hurt = crate::kit::directory();
        let copy = crate::kit::freeze(&path, &hurt);
        let mut flipped = bytes.clone();
        flipped[place] ^= 1 << (place % 8);
        std::fs::write(turns(&copy), flipped).expect("the log can be written");
        match crate::kit::open(&copy).and_then(|mut store| crate::kit::read_all(&mut store)) {
            Ok(seen) => assert_eq!(seen, whole, "byte {place} of the log was silently lost"),
            Err(StoreError::Damaged { what, .. }) => {
                assert!(what.contains("turn log"), "{what}");
                noticed += 1;
                let report = check(&copy, |_| {}).expect("it can be read");
                assert!(
                    !report.is_clean(),
                    "byte {place}: the audit does not see it"
                );
            }
            Err(error) => panic!("byte {place}: {error}"),
        }
    }
    assert!(noticed > 15, "only {noticed} flips were noticed");
}

/// Shows `rel D7`: the last commit may be torn at any sector; earlier ones stay.
#[test]
fn a_turn_log_torn_at_any_sector_opens_with_a_prefix_of_the_commits() {
    let (_directory, path, whole) = stopped();
    let bytes = std::fs::read(turns(&path)).expect("the log is there");
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("it is used")
        + 1;
    let mut last = 0;
    for cut in (0..=used).step_by(512) {
        let hurt = crate::kit::directory();
        let copy = crate::kit::freeze(&path, &hurt);
        let mut torn = bytes.clone();
        torn[cut..].fill(0);
        std::fs::write(turns(&copy), &torn).expect("the log can be written");
        let mut store = crate::kit::open(&copy).expect("a torn end is no damage");
        let opened = store.open().expect("it opens");
        store.load(&mut |_| {}).expect("what is there is whole");
        assert!(last <= opened.sequence, "a longer log has more");
        last = opened.sequence;
    }
    let seen =
        crate::kit::read_all(&mut crate::kit::open(&path).expect("it opens")).expect("it is whole");
    assert_eq!(seen, whole);
}

fn refusal(path: &Path) -> String {
    let opened = crate::kit::open(path).and_then(|mut store| store.open());
    let Err(StoreError::Damaged { what, .. }) = opened else {
        panic!("it opens: {opened:?}");
    };
    let report = check(path, |_| {}).expect("it can be read");
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(found.contains(&what), "{found:?}");
    what
}

/// The log always has its initial size, so the missing part may have held acknowledged commits.
#[test]
fn a_turn_log_shorter_than_it_was_made_is_refused() {
    let (_directory, path, _) = stopped();
    let log = std::fs::OpenOptions::new()
        .write(true)
        .open(turns(&path))
        .expect("the log is there");
    for length in [(2 << 20) - 1, 12_000, 300, 1] {
        log.set_len(length).expect("it can be cut");
        let what = refusal(&path);
        assert!(what.contains(&format!("has {length} bytes")), "{what}");
    }
    // An operator can declare the log lost; an audit before that counts it.
    log.set_len(0).expect("it can be cut");
    let report = check(&path, |_| {}).expect("it can be read");
    assert!(
        report.findings[0].what.contains("has 0 bytes"),
        "{report:?}"
    );
    crate::kit::open(&path)
        .and_then(|mut store| store.open())
        .expect("it opens");
}

/// Makes a store that stopped with one commit, with a payload of `bytes`, only in its turn log; returns that log too.
fn with_one_commit(bytes: usize) -> (TempDir, PathBuf, Vec<u8>) {
    let (directory, frozen) = (crate::kit::directory(), crate::kit::directory());
    let path = directory.path().join("1.db");
    let mut store = crate::kit::open(&path).expect("a store can be made");
    let mut changes = submission(1);
    changes[1] = Change::PutPayload {
        key: JobKey(1),
        payload: vec![b'x'; bytes].into(),
    };
    crate::kit::write(&mut store, vec![changes]);
    let copy = crate::kit::freeze(&path, &frozen);
    let log = std::fs::read(turns(&copy)).expect("the log is there");
    (frozen, copy, log)
}

/// A sector is written completely or not at all, so a damaged record within one sector was complete once.
#[test]
fn a_broken_record_that_no_power_cut_explains_is_refused() {
    let (_directory, path, mut log) = with_one_commit(10);
    log[40] ^= 4;
    std::fs::write(turns(&path), &log).expect("it can be written");
    let what = refusal(&path);
    assert!(
        what.starts_with("commit 1, ") && what.contains("at byte 0 of its turn log"),
        "{what}"
    );
    // This is the next step that the message names.
    log[0] = 0;
    std::fs::write(turns(&path), &log).expect("it can be written");
    let opened = crate::kit::open(&path).and_then(|mut store| store.open());
    assert_eq!(opened.expect("it opens").sequence, 0);
}

#[test]
fn a_broken_record_that_a_power_cut_may_have_torn_is_reported_and_left_out() {
    for is_torn in [false, true] {
        let (_directory, path, mut log) = with_one_commit(2_000);
        if is_torn {
            log[1_024..].fill(0);
        } else {
            log[1_000] ^= 4;
        }
        std::fs::write(turns(&path), &log).expect("it can be written");
        let report = check(&path, |_| {}).expect("it can be read");
        assert_eq!(report.findings, []);
        let doubt = report.doubt.expect("it is reported");
        assert!(doubt.starts_with("commit 1, 2"), "{doubt}");
        let opened = crate::kit::open(&path).and_then(|mut store| store.open());
        assert_eq!(opened.expect("it opens").sequence, 0);
    }
}

#[test]
fn the_turn_log_of_another_store_is_not_taken_for_ours() {
    let (_directory, path, _) = stopped();
    let (_other, theirs, _) = stopped();
    std::fs::copy(turns(&theirs), turns(&path)).expect("files can be copied");
    refusal(&path);
}

#[test]
fn a_store_whose_turn_log_was_left_behind_is_refused() {
    let (_directory, path, _) = stopped();
    std::fs::remove_file(turns(&path)).expect("it is there");
    for is_alone in [false, true] {
        if is_alone {
            std::fs::remove_file(wal(&path)).expect("it is there");
        }
        let Err(StoreError::Damaged { what, .. }) = crate::kit::open(&path).map(drop) else {
            panic!("it opens without what was acknowledged");
        };
        assert!(what.contains("-turns is missing"), "{what}");
        assert!(!check(&path, |_| {}).expect("it can be read").is_clean());
    }
    // An operator can declare the log lost.
    std::fs::write(turns(&path), "").expect("it can be written");
    crate::kit::open(&path)
        .and_then(|mut store| store.open())
        .expect("it opens");
}

#[test]
fn an_older_file_in_the_place_of_a_store_that_was_not_closed_is_refused() {
    let (directory, path) = (crate::kit::directory(), crate::kit::directory());
    let path = path.path().join("1.db");
    let mut store = crate::kit::open(&path).expect("a store can be made");
    crate::kit::write(&mut store, vec![submission(1)]);
    let old = directory.path().join("old.db");
    backup(&path, &old).expect("a copy can be made");
    crate::kit::write(&mut store, crate::kit::content());
    crate::kit::write(&mut store, vec![submission(1)]);
    let frozen = crate::kit::directory();
    let copy = crate::kit::freeze(&path, &frozen);
    std::fs::remove_file(wal(&copy)).expect("it is there");
    std::fs::copy(&old, &copy).expect("files can be copied");
    let refused = crate::kit::open(&copy).and_then(|mut store| store.open());
    let Err(StoreError::Damaged { what, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        what.contains("turn log") && what.contains("commits 2 to"),
        "{what}"
    );
    assert!(!check(&copy, |_| {}).expect("it can be read").is_clean());
}

/// Returns the changes that submit a job with its payload.
fn submission(key: u64) -> Vec<Change> {
    let payload = Change::PutPayload {
        key: JobKey(key),
        payload: Bytes::from_static(b"payload"),
    };
    vec![Change::PutJob(Box::new(job(key))), payload]
}

/// Limits that a few commits reach: several segments, and commits that do not fit into one.
const SMALL: Limits = Limits {
    log_pages: 60,
    log_pages_idle: 20,
    waiting_commits: 12,
    waiting_changes: 30,
    waiting_bytes: 4 << 10,
    waiting_for: Duration::MAX,
    segment_bytes: 2 << 10,
    segments_max: 3,
    has_row_thread: false,
};

/// A step in the use of a store.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A commit that goes into the turn log.
    Small,
    /// A commit that is too large for a segment and goes into the tables at once.
    AtOnce,
    /// A reader looks at the rows.
    Read,
    /// The store is idle.
    Idle,
    /// The store is opened again without a clean close.
    Open,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => Just(Step::Small),
        1 => Just(Step::AtOnce),
        3 => Just(Step::Read),
        1 => Just(Step::Idle),
        1 => Just(Step::Open),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A store in use, and the length of its write-ahead log at the last flush.
struct Used {
    written: crate::kit::Written,
    path: PathBuf,
    flushed: u64,
    /// Number of flushes that the store had ordered when they were last counted.
    flushes: u64,
}

impl Used {
    fn start(directory: &TempDir) -> Self {
        let path = directory.path().join("1.db");
        let mut used = Self {
            written: crate::kit::Written::start(&path, SMALL),
            path,
            flushed: 0,
            flushes: 0,
        };
        used.take(Step::Open);
        used
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Small | Step::AtOnce => self.commit(step),
            Step::Read => {
                let mut reader = self.written.store.reader().expect("a reader opens");
                let last = reader.job(JobKey(self.written.sequence)).expect("reads");
                assert_eq!(
                    last.is_some(),
                    self.written.sequence > 0,
                    "the last commit is seen"
                );
            }
            Step::Idle => self.written.store.idle().expect("nothing is in the way"),
            Step::Open => self.written.open(),
        }
        self.note_flushes(matches!(step, Step::Small).into());
    }

    /// Notes the length of the write-ahead log if the store has flushed more than the `appended` commits in the turn log.
    /// It also does so by itself, where that log has no room, or behind the commits.
    fn note_flushes(&mut self, appended: u64) {
        let flushes = self.written.store.flushes();
        if flushes != self.flushes + appended {
            self.flushed = std::fs::metadata(wal(&self.path)).map_or(0, |file| file.len());
        }
        self.flushes = flushes;
    }

    fn commit(&mut self, step: Step) {
        let mut changes = submission(self.written.sequence + 1);
        if matches!(step, Step::AtOnce) {
            changes.push(Change::PutPayload {
                key: JobKey(self.written.sequence + 1),
                payload: vec![b'x'; 3 << 10].into(),
            });
        }
        self.written.commit(changes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// After a power cut any part of the unflushed data may be on disk. Acknowledged commits are there.
    #[test]
    fn the_power_may_go_at_any_moment(steps in steps(), kept in 0..=100_usize, hole in any::<Option<u16>>()) {
        let (directory, frozen) = (crate::kit::directory(), crate::kit::directory());
        let mut used = Used::start(&directory);
        for step in steps {
            used.take(step);
        }
        used.note_flushes(0);
        let copy = crate::kit::freeze(&used.path, &frozen);
        let mut log = std::fs::read(wal(&copy)).expect("the log is there");
        let flushed = usize::try_from(used.flushed).expect("a small file");
        let unflushed = log.len().saturating_sub(flushed);
        let kept = unflushed * kept / 100;
        log.truncate(flushed + kept);
        if let Some(hole) = hole.filter(|_| kept > 0) {
            let from = flushed + usize::from(hole) % kept;
            let to = log.len().min(from + 512);
            log[from..to].fill(0);
        }
        std::fs::write(wal(&copy), log).expect("it can be written");

        let report = check(&copy, |_| {}).expect("it can be read");
        prop_assert_eq!(&report.findings, &[]);
        prop_assert_eq!(report.live_jobs, used.written.sequence);
        let mut store = crate::kit::open(&copy).expect("it opens");
        prop_assert_eq!(store.open().expect("it opens").sequence, used.written.sequence);
        let mut jobs = 0;
        store.load(&mut |row| jobs += u64::from(matches!(row, ganger_store::Loaded::Job(_)))).expect("it is whole");
        prop_assert_eq!(jobs, used.written.sequence);
    }
}
