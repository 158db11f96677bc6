//! Rows of qless in the file: each must match its key, and the audit reads and counts them.

use std::path::Path;

use ganger_store::{Loaded, Store};
use ganger_store_embedded::check;
use ganger_types::qless::{QlessQueue, QlessRow, QlessTime};
use ganger_types::{Bytes, Change, ExternalChange, ExternalRow, Namespace};

fn row(name: &'static str) -> QlessRow {
    QlessRow::Queue(QlessQueue {
        name: Bytes::from_static(name.as_bytes()),
        seen_at: Some(QlessTime::new(0.1)),
        is_paused: false,
    })
}

fn put(row: QlessRow) -> Change {
    Change::External(ExternalChange::PutQless(
        Namespace::default(),
        Box::new(row),
    ))
}

/// Makes a closed store with three rows.
fn with_rows(path: &Path) {
    let mut store = crate::kit::open(path).expect("a store can be made");
    let counted = QlessRow::TagCount(Bytes::from_static(b"a"), 3);
    crate::kit::write(&mut store, vec![vec![put(row("a")), put(row("b"))]]);
    crate::kit::write(&mut store, vec![vec![put(counted)]]);
}

fn change(path: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(path).expect("SQLite opens it");
    assert_eq!(connection.execute(sql, []).expect("the table is there"), 1);
}

#[test]
fn the_audit_counts_rows_of_qless() {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    with_rows(&path);
    let report = check(&path, |_| {}).expect("it can be read");
    assert_eq!((report.external_rows, report.findings), (3, Vec::new()));
}

#[test]
fn rows_of_qless_that_are_not_what_their_names_say_are_reported_and_not_loaded() {
    let to_another_namespace = "UPDATE qless SET name = CAST(x'0130' || substr(name, 9) AS BLOB)
        WHERE name = (SELECT min(name) FROM qless)";
    let to_another_name = "UPDATE qless SET name = CAST(name || x'00' AS BLOB)
        WHERE name = (SELECT min(name) FROM qless)";
    let damaged = "UPDATE qless SET body = zeroblob(length(body))
        WHERE name = (SELECT min(name) FROM qless)";
    for sql in [to_another_namespace, to_another_name, damaged] {
        let directory = crate::kit::directory();
        let path = directory.path().join("1.db");
        with_rows(&path);
        change(&path, sql);
        let report = check(&path, |_| {}).expect("it can be read");
        assert_eq!(report.findings.len(), 1, "{sql}");
        assert!(report.findings[0].what.contains("qless"), "{sql}");
        assert_eq!(report.external_rows, 2, "{sql}");
        let mut store = crate::kit::open(&path).expect("it opens");
        store.open().expect("it opens");
        let mut rows = 0;
        let loaded = store.load(&mut |row| {
            rows += usize::from(matches!(row, Loaded::External(ExternalRow::Qless(..))));
        });
        let refused = loaded.expect_err("a row is not what it should be");
        assert!(refused.to_string().contains("qless"), "{refused}");
        assert_eq!(rows, 0, "{sql}");
    }
}
