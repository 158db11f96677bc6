//! Damage is reported before the data is used, never passed on (`rel D7`, `rel D8`, f12, f17).

use std::path::{Path, PathBuf};

use ganger_store::{Store, StoreError};
use ganger_store_embedded::{Limits, check};

/// Returns `count` positions, evenly spread and always the same, with a mask for each.
fn places(length: usize, count: usize) -> impl Iterator<Item = (usize, u8)> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count).map(move |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let place = usize::try_from(state >> 24).expect("a large address space") % length;
        (place, 1 << (state >> 61))
    })
}

fn flip(path: &Path, place: usize, bit: u8) {
    let mut bytes = std::fs::read(path).expect("the file is there");
    bytes[place] ^= bit;
    std::fs::write(path, bytes).expect("the file can be written");
}

/// Opens the damaged copy and asserts that it is refused, shows what was written, or fails the audit. Returns whether
/// it is refused or fails.
fn assert_honest(path: &Path, whole: &crate::kit::StoreContent, what: &str) -> bool {
    let Ok(mut store) = crate::kit::open(path) else {
        return true;
    };
    let Ok(seen) = crate::kit::read_all(&mut store) else {
        return true;
    };
    drop(store);
    if seen == *whole {
        return false;
    }
    // A reader misses rows that cannot be found any more; rows that are found must be right.
    assert_eq!(seen.loaded, whole.loaded, "{what}: wrong rows at start");
    for (seen, whole) in seen.jobs.iter().zip(&whole.jobs) {
        assert!(seen.is_none() || seen == whole, "{what}: a wrong job");
    }
    for (seen, whole) in seen.payloads.iter().zip(&whole.payloads) {
        assert!(seen.is_none() || seen == whole, "{what}: a wrong payload");
    }
    let report = check(path, |_| {}).expect("it can be read");
    assert!(
        !report.is_clean(),
        "{what}: missing rows that the audit does not see"
    );
    true
}

#[test]
fn a_flipped_bit_in_the_file_is_harmless_or_reported() {
    let directory = crate::kit::directory();
    let path = crate::kit::filled(&directory);
    let whole = crate::kit::read_all(&mut crate::kit::open(&path).expect("whole")).expect("whole");
    let length = std::fs::read(&path).expect("the file is there").len();
    let mut noticed = 0;
    for (place, bit) in places(length, 100) {
        let hurt = crate::kit::directory();
        let copy = crate::kit::freeze(&path, &hurt);
        flip(&copy, place, bit);
        noticed += u32::from(assert_honest(
            &copy,
            &whole,
            &format!("bit {bit} of byte {place}"),
        ));
    }
    assert!(noticed > 10, "only {noticed} flips hit anything");
}

/// Makes a store that stopped with all its commits in the write-ahead log of the tables, each flushed there, and in the
/// turn log.
fn with_log() -> (tempfile::TempDir, PathBuf, crate::kit::StoreContent) {
    let (directory, frozen) = (crate::kit::directory(), crate::kit::directory());
    let path = directory.path().join("1.db");
    let limits = Limits {
        log_pages_idle: u64::MAX,
        ..crate::kit::WITHOUT_THREAD()
    };
    let mut written = crate::kit::Written::start(&path, limits);
    for changes in crate::kit::content() {
        written.commit(changes);
        written.store.idle().expect("nothing is in the way");
    }
    let copy = crate::kit::freeze(&path, &frozen);
    drop(written);
    let whole = crate::kit::read_all(&mut crate::kit::open(&path).expect("whole")).expect("whole");
    (frozen, copy, whole)
}

fn wal(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-wal", path.display()))
}

fn turns(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-turns", path.display()))
}

fn open_and_read(path: &Path) -> Result<crate::kit::StoreContent, StoreError> {
    crate::kit::open(path).and_then(|mut store| crate::kit::read_all(&mut store))
}

#[test]
fn a_flipped_bit_in_the_write_ahead_log_is_harmless_while_the_turn_log_has_the_commits() {
    let (_directory, path, whole) = with_log();
    let length = std::fs::read(wal(&path)).expect("the log is there").len();
    for (place, bit) in places(length, 30) {
        let hurt = crate::kit::directory();
        let copy = crate::kit::freeze(&path, &hurt);
        flip(&wal(&copy), place, bit);
        let seen = open_and_read(&copy).expect("everything is in the turn log");
        assert_eq!(seen, whole, "byte {place} of the log");
    }
}

#[test]
fn a_flipped_bit_in_the_write_ahead_log_alone_is_reported_unless_it_is_in_the_torn_end() {
    let (_directory, path, whole) = with_log();
    std::fs::write(turns(&path), "").expect("it can be emptied");
    let length = std::fs::read(wal(&path)).expect("the log is there").len();
    let mut noticed = 0;
    for (place, bit) in places(length * 8 / 10, 60) {
        let hurt = crate::kit::directory();
        let copy = crate::kit::freeze(&path, &hurt);
        flip(&wal(&copy), place, bit);
        match open_and_read(&copy) {
            Ok(seen) => assert_eq!(seen, whole, "byte {place} of the log was silently lost"),
            Err(StoreError::Damaged { what, .. }) => {
                assert!(what.contains("log"), "{what}");
                noticed += 1;
            }
            Err(error) => panic!("byte {place}: {error}"),
        }
    }
    assert!(noticed > 40, "only {noticed} flips were noticed");
}

/// Shows `rel D7`: the last transaction may be torn anywhere; earlier ones stay, and the turn log has the commits.
#[test]
fn a_write_ahead_log_cut_at_any_byte_loses_nothing_and_without_a_turn_log_the_end_only() {
    let (_directory, path, whole) = with_log();
    let bytes = std::fs::read(wal(&path)).expect("the log is there");
    let mut last = 0;
    for (cut, _) in places(bytes.len(), 30) {
        let hurt = crate::kit::directory();
        let copy = crate::kit::freeze(&path, &hurt);
        std::fs::write(wal(&copy), &bytes[..cut]).expect("the log can be written");
        let seen = open_and_read(&copy).expect("everything is in the turn log");
        assert_eq!(seen, whole, "cut at {cut}");
        let hurt = crate::kit::directory();
        let copy = crate::kit::freeze(&path, &hurt);
        std::fs::write(wal(&copy), &bytes[..cut]).expect("the log can be written");
        std::fs::write(turns(&copy), "").expect("it can be emptied");
        let mut store = crate::kit::open(&copy).expect("a torn end is no damage");
        let opened = store.open().expect("it opens");
        store.load(&mut |_| {}).expect("what is there is whole");
        last = last.max(opened.sequence);
    }
    assert!(last > 1, "some cut keeps more than one commit");
}

/// The turn log is written over once the tables have its commits, so only the tables have the older ones.
#[test]
fn a_write_ahead_log_that_lost_what_the_turn_log_no_longer_has_is_refused() {
    let (directory, frozen) = (crate::kit::directory(), crate::kit::directory());
    let path = directory.path().join("1.db");
    let limits = Limits {
        segment_bytes: 8 << 10,
        segments_max: 1,
        ..crate::kit::WITHOUT_THREAD()
    };
    let mut written = crate::kit::Written::start(&path, limits);
    for changes in crate::kit::content() {
        written.commit(changes);
    }
    let path = crate::kit::freeze(&path, &frozen);
    let bytes = std::fs::read(wal(&path)).expect("the log is there");
    let mut refused = 0;
    for (cut, _) in places(bytes.len(), 30) {
        std::fs::write(wal(&path), &bytes[..cut]).expect("the log can be written");
        let opened = crate::kit::open(&path).map(drop);
        match opened {
            Err(StoreError::Damaged { what, .. }) => {
                assert!(what.contains("turn log"), "{what}");
                refused += 1;
            }
            other => other.expect("either all is there or the loss is reported"),
        }
    }
    assert!(refused > 15, "only {refused} cuts were refused");
}

fn change_with_sql(path: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(path).expect("SQLite opens it");
    assert_eq!(
        connection.execute(sql, []).expect("the statement runs"),
        1,
        "{sql}"
    );
}

#[test]
fn damage_names_the_table_the_row_and_the_file() {
    let directory = crate::kit::directory();
    let path = crate::kit::filled(&directory);
    change_with_sql(&path, "UPDATE jobs SET body = zeroblob(50) WHERE key = 17");
    let mut store = crate::kit::open(&path).expect("the damage is inside");
    store.open().expect("the damage is inside");
    let error = store
        .load(&mut |_| {})
        .expect_err("job 17 is damaged")
        .to_string();
    for word in ["table jobs", "job 17", "checksum", "1.db", "ganger check"] {
        assert!(error.contains(word), "{word} is missing in: {error}");
    }
}

#[test]
fn rows_that_vanish_are_missed_at_start_and_by_the_audit() {
    for sql in [
        "DELETE FROM jobs WHERE key = 17",
        "DELETE FROM leases WHERE key = 16",
        "DELETE FROM meta",
    ] {
        let directory = crate::kit::directory();
        let path = crate::kit::filled(&directory);
        change_with_sql(&path, sql);
        let loaded = crate::kit::open(&path).and_then(|mut store| {
            store.open()?;
            store.load(&mut |_| {})
        });
        assert!(
            matches!(loaded, Err(StoreError::Damaged { .. })),
            "{sql}: {loaded:?}"
        );
        assert!(
            !check(&path, |_| {}).expect("it can be read").is_clean(),
            "{sql}"
        );
    }
}

#[test]
fn the_audit_finds_what_disagrees() {
    for (sql, word) in [
        ("DELETE FROM finished WHERE key = 75", "finished"),
        ("DELETE FROM payloads WHERE key = 5", "without its payload"),
        ("DELETE FROM marks WHERE key = 3", "entry"),
        ("UPDATE finished SET ended_at = 1 WHERE key = 75", "columns"),
        ("DELETE FROM tag_counts", "counts 0"),
        ("DELETE FROM queues", "queues"),
        ("UPDATE inputs SET upstream = 9 WHERE job = 2", "columns"),
        ("UPDATE payloads SET body = x'00' WHERE key = 9", "checksum"),
    ] {
        let directory = crate::kit::directory();
        let path = crate::kit::filled(&directory);
        assert!(check(&path, |_| {}).expect("it can be read").is_clean());
        change_with_sql(&path, sql);
        let report = check(&path, |_| {}).expect("it can be read");
        let text: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(
            text.iter().any(|line| line.contains(word)),
            "{sql}: {text:?}"
        );
    }
}
