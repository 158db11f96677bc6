//! The content of the stores of older formats that are kept beside the tests: rows of every kind.
//!
//! The program that wrote the format made the files from these changes, so they must not change.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use ganger_store::suite::sample::{self, MORNING, TODAY};
use ganger_types::{
    Bytes, Change, FailurePolicy, Graph, Group, IdTag, IdempotencyKey, IdempotencyRecord, InputRow,
    InputState, JobId, JobKey, Namespace, Outcome, Queue, SubmissionAnswer, SubmittedJobs, Tag,
    Timestamp,
};

/// Number of live jobs: 0 to 11 are live, 12 to 19 finished.
const LIVE: u64 = 12;
const ALL: u64 = 20;

/// Formats of which a store is kept beside the tests.
pub(crate) const FORMATS: [u8; 3] = [1, 4, 7];

/// Bytes of the turn log of format 7; the file that is kept lacks the zeros behind its record.
const TURNS_BYTES: u64 = 2 << 20;

/// Copies the store of a format that is kept beside the tests: its file and its logs.
pub(crate) fn of_format(format: impl Display, directory: &tempfile::TempDir) -> PathBuf {
    let kept =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{format}"));
    let path = directory.path().join("1.db");
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", kept.display());
        std::fs::copy(from, format!("{}{suffix}", path.display())).expect("it is there");
    }
    let turns = format!("{}-turns", kept.display());
    if Path::new(&turns).exists() {
        let to = format!("{}-turns", path.display());
        std::fs::copy(turns, &to).expect("it can be copied");
        let file = std::fs::File::options().write(true).open(to);
        let extended = file.and_then(|file| file.set_len(TURNS_BYTES));
        extended.expect("it can be made longer");
    }
    path
}

/// Copies the store of format 1, which needs the most upgrade steps.
pub(crate) fn format_1(directory: &tempfile::TempDir) -> PathBuf {
    of_format(1, directory)
}

/// Returns the content of a store that this program makes from the same changes.
pub(crate) fn expected() -> super::StoreContent {
    let directory = super::directory();
    let mut store = super::open(&directory.path().join("1.db")).expect("a store can be made");
    super::write(&mut store, commits().into());
    super::read_all(&mut store).expect("it is whole")
}

/// Returns the content of a store and asserts that it passes the audit.
pub(crate) fn as_it_is(path: &Path) -> super::StoreContent {
    let mut store = super::open(path).expect("it opens");
    let seen = super::read_all(&mut store).expect("it is whole");
    drop(store);
    let report = ganger_store_embedded::check(path, |_| {}).expect("it can be read");
    assert_eq!(report.findings, []);
    seen
}

/// Returns the commits of such a store: the first is in the file, the second in the write-ahead log or, from format 7
/// on, in the turn log beside it.
pub(crate) fn commits() -> [Vec<Change>; 2] {
    let mut first = small_rows();
    for change in &mut first {
        // Queues of these formats had no age at which they need attention.
        if let Change::PutQueue(queue) = change {
            queue.settings.alert_age = None;
        }
    }
    first.extend((0..ALL - 2).flat_map(job));
    first.extend(inputs());
    let mut second: Vec<Change> = (ALL - 2..ALL).flat_map(job).collect();
    second.push(Change::PutIdempotencyRecord(Box::new(idempotency_record(
        "late",
        &[made(18)],
    ))));
    second.push(Change::RemoveUnique(
        Namespace::default(),
        ganger_types::UniqueKey::from_static("over"),
    ));
    [first, second]
}

/// Returns a job's number and the id that the engine generated for it.
pub(crate) fn made(key: u64) -> (JobKey, JobId) {
    (JobKey(key), JobId::made(JobKey(key), IdTag(7)))
}

fn given(name: &str) -> JobId {
    JobId::new(name).expect("short")
}

fn job(key: u64) -> Vec<Change> {
    let mut record = if key == 5 {
        sample::full_job(key)
    } else {
        sample::job(key)
    };
    if key.is_multiple_of(3) {
        record.tags = vec![Tag::from_static("third")];
    }
    let payload = Bytes::from(format!("payload of job {key}").repeat(5));
    let key = JobKey(key);
    if key.0 < LIVE {
        let mut changes = vec![
            Change::PutJob(Box::new(record)),
            Change::PutPayload { key, payload },
        ];
        if key.0.is_multiple_of(4) {
            changes.push(Change::PutLease(Box::new(sample::lease(key.0, "w1"))));
        }
        return changes;
    }
    let has_failed = key.0 == 15;
    let outcome = if has_failed {
        Outcome::Failed
    } else {
        Outcome::Succeeded
    };
    let result = Bytes::from(format!("result {key}"));
    let mut record = sample::ended(record, outcome, key.0, key.0);
    record.failure = has_failed.then(|| sample::failure("io", "broken"));
    let length = u64::try_from(result.len()).expect("short");
    record.finished.as_mut().expect("it has ended").result_bytes = Some(length);
    vec![
        Change::PutPayload { key, payload },
        Change::FinishJob {
            record: Box::new(record),
            result: Some(result),
        },
        Change::AppendLog {
            key,
            attempt: 1,
            offset: 0,
            at: MORNING,
            bytes: Bytes::from_static(b"a line\n"),
        },
    ]
}

fn inputs() -> Vec<Change> {
    let (dependency, policy) = (JobKey(1), FailurePolicy::Wait);
    let id = || made(1).1;
    let rows = [
        (0, InputState::Value(Bytes::from_static(b"given"))),
        (
            1,
            InputState::Missing {
                dependency,
                id: id(),
                policy,
            },
        ),
        (2, InputState::Ignored { id: id() }),
        (
            InputRow::EDGE_FIRST,
            InputState::Delivered {
                dependency,
                id: id(),
                policy,
            },
        ),
    ];
    let row = |(slot, state)| {
        Change::PutInput(InputRow {
            job: JobKey(2),
            slot,
            state,
        })
    };
    rows.map(row).into()
}

fn idempotency_record(key: &'static str, jobs: &[(JobKey, JobId)]) -> IdempotencyRecord {
    IdempotencyRecord {
        namespace: Namespace::default(),
        key: IdempotencyKey::from_static(key),
        answer: SubmissionAnswer {
            fingerprint: 99,
            jobs: SubmittedJobs::collect(jobs.iter().map(|(key, id)| (*key, id, false))),
            graph: Some(Graph::from_static("g")),
            until: MORNING,
        },
    }
}

/// Returns idempotency records of every shape: generated ids of one start in order, of two starts, chosen ids, a mix,
/// none.
fn idempotency_records() -> Vec<Change> {
    let many = (0..300).map(made).collect();
    let two_starts = vec![made(3), (JobKey(4), JobId::made(JobKey(4), IdTag(8)))];
    let mixed = vec![
        (JobKey(5), given("five")),
        made(6),
        made(7),
        made(6),
        (JobKey(9), made(2).1),
    ];
    let all = [
        ("many", many),
        ("two starts", two_starts),
        ("mixed", mixed),
        ("none", Vec::new()),
    ];
    all.map(|(key, jobs)| Change::PutIdempotencyRecord(Box::new(idempotency_record(key, &jobs))))
        .into()
}

fn small_rows() -> Vec<Change> {
    let mut queue = sample::queue("default");
    (queue.succeeded, queue.failed) = (7, 1);
    let default = Namespace::default;
    let mut all = vec![
        Change::PutNamespace(Box::new(sample::namespace("default"))),
        Change::PutNamespace(Box::new(sample::namespace("other"))),
        Change::PutQueue(Box::new(queue)),
        Change::PutQueue(Box::new(ganger_types::QueueRecord {
            queue: Queue::from_static("images"),
            succeeded: 0,
            failed: 0,
            ..sample::queue("images")
        })),
        Change::PutSchedule(Box::new(sample::schedule("nightly"))),
        Change::PutUnique(Box::new(sample::unique("once"))),
        Change::PutUnique(Box::new(sample::unique("over"))),
        Change::PutTagCount(default(), Tag::from_static("third"), 7),
        Change::PutTagCount(default(), Tag::from_static("red"), 1),
        Change::PutTagCount(default(), Tag::from_static(""), 1),
        Change::PutGroupCount(default(), Group::from_static("io"), 1),
        Change::PutTracked(default(), given("followed"), Some(Timestamp(5))),
        Change::PutStatistics(Box::new(sample::statistics(TODAY))),
    ];
    all.extend(idempotency_records());
    all
}
