//! Stores of older formats open, and lose nothing (`rel D14`).

use std::path::Path;

use crate::kit::fixture::{FORMATS, as_it_is, expected, format_1, of_format};
use ganger_store::{Loaded, Store};
use ganger_store_embedded::check;
use ganger_types::qless::QlessRow;
use ganger_types::{Bytes, ExternalRow, IdempotencyRecord, JobKey};

#[test]
fn a_store_of_an_older_format_opens_with_every_row_as_it_was() {
    for format in FORMATS {
        let directory = crate::kit::directory();
        let path = of_format(format, &directory);
        assert_eq!(as_it_is(&path), expected(), "format {format}");
        // Again, now that the store has today's format.
        assert_eq!(as_it_is(&path), expected(), "format {format}");
    }
}

#[test]
fn a_store_of_an_older_format_passes_the_audit_as_it_is() {
    for format in FORMATS {
        let directory = crate::kit::directory();
        let path = of_format(format, &directory);
        let report = check(&path, |_| {}).expect("it can be read");
        let found = (report.findings, report.sequence);
        assert_eq!(found, (Vec::new(), 2), "format {format}");
    }
}

#[test]
fn an_upgraded_store_says_so_in_its_file_and_keeps_a_log() {
    for format in FORMATS {
        let directory = crate::kit::directory();
        let path = of_format(format, &directory);
        drop(crate::kit::open(&path).expect("it opens"));
        let header = std::fs::read(&path).expect("it is there");
        // Offsets 18 and 60 of <https://www.sqlite.org/fileformat2.html#the_database_header>.
        assert_eq!(header[18..20], [2, 2], "it uses a log");
        assert_eq!(header[60..64], [0, 0, 0, 9], "its version");
    }
}

#[test]
fn idempotency_keys_of_format_1_are_rewritten_as_runs() {
    let directory = crate::kit::directory();
    let path = format_1(&directory);
    let length = |path: &Path| -> i64 {
        let connection = rusqlite::Connection::open(path).expect("SQLite opens it");
        let sql = "SELECT sum(length(body)) FROM claims";
        connection
            .query_row(sql, [], |row| row.get(0))
            .expect("the table is there")
    };
    let before = length(&path);
    let mut store = crate::kit::open(&path).expect("it opens");
    store.open().expect("it opens");
    let mut many: Option<IdempotencyRecord> = None;
    let mut each = |row| match row {
        Loaded::IdempotencyRecord(record) if record.key.as_bytes() == b"many" => {
            many = Some(*record);
        }
        _ => {}
    };
    store.load(&mut each).expect("it is whole");
    drop(store);
    assert!(length(&path) * 10 < before, "{} of {before}", length(&path));
    let jobs = many.expect("it is there").answer.jobs;
    assert_eq!(jobs.runs().len(), 1);
    let answer = jobs.answer(&[None; 300]).expect("so many jobs");
    assert_eq!(answer[299], crate::kit::fixture::made(299));
    assert_eq!(answer[0].0, JobKey(0));
}

/// Returns the qless jobs in a store: namespace, id, number.
fn jobs_of_qless(path: &Path) -> Vec<(String, Bytes, u64)> {
    let mut store = crate::kit::open(path).expect("it opens");
    store.open().expect("it opens");
    let mut found = Vec::new();
    let mut each = |loaded| {
        if let Loaded::External(ExternalRow::Qless(namespace, row)) = loaded
            && let QlessRow::Job(job) = *row
        {
            found.push((namespace.to_string(), job.jid.clone(), job.number));
        }
    };
    store.load(&mut each).expect("it is whole");
    found
}

#[test]
fn jobs_of_qless_of_format_5_get_numbers_and_are_named_by_them() {
    let directory = crate::kit::directory();
    let path = of_format("5-qless", &directory);
    let before = check(&path, |_| {}).expect("it can be read");
    assert_eq!((before.external_rows, before.findings), (7, Vec::new()));
    let job = |(namespace, jid, number): (&str, &'static str, u64)| {
        (
            namespace.to_owned(),
            Bytes::from_static(jid.as_bytes()),
            number,
        )
    };
    let expected = [
        ("other", "a", 1),
        ("default", "", 2),
        ("default", "a", 3),
        ("default", "b", 4),
        ("default", "c", 5),
    ];
    assert_eq!(jobs_of_qless(&path), expected.map(job));
    // Again, now that the store has today's format.
    assert_eq!(jobs_of_qless(&path), expected.map(job));
    let after = check(&path, |_| {}).expect("it can be read");
    assert_eq!((after.external_rows, after.findings), (7, Vec::new()));
}

#[test]
fn damage_stops_the_upgrade_and_nothing_is_changed() {
    let directory = crate::kit::directory();
    let path = format_1(&directory);
    let connection = rusqlite::Connection::open(&path).expect("SQLite opens it");
    let sql = "UPDATE claims SET body = zeroblob(40) WHERE name = (SELECT max(name) FROM claims)";
    assert_eq!(connection.execute(sql, []).expect("the table is there"), 1);
    drop(connection);
    let refused = crate::kit::open(&path)
        .map(drop)
        .expect_err("it is damaged");
    assert!(refused.to_string().contains("claims"), "{refused}");
    let again = crate::kit::open(&path)
        .map(drop)
        .expect_err("it is still damaged");
    assert_eq!(refused.to_string(), again.to_string());
    let file = std::fs::read(&path).expect("it is there");
    assert_eq!(file[18..20], [2, 2], "it uses a log");
    assert_eq!(file[60..64], [0, 0, 0, 1], "its version");
}

/// Makes such a file in the directory `GANGER_FIXTURE`, in the format that this program writes; without the variable
/// it does nothing. Run by hand before a format changes.
#[test]
fn make_a_fixture_of_the_format_of_today() {
    let Some(target) = std::env::var_os("GANGER_FIXTURE") else {
        return;
    };
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    let [first, second] = crate::kit::fixture::commits();
    let mut store = crate::kit::open(&path).expect("a store can be made");
    crate::kit::write(&mut store, vec![first]);
    // Opening writes everything into the file; later commits stay in the turn log.
    store.open().expect("it opens");
    crate::kit::write(&mut store, vec![second]);
    for suffix in ["", "-wal", "-turns"] {
        let mut to = target.clone();
        to.push(suffix);
        std::fs::copy(format!("{}{suffix}", path.display()), to).expect("it can be copied");
    }
    let report = check(&path, |_| {}).expect("it can be read");
    assert_eq!(report.findings, []);
}
