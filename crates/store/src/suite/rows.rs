//! Every kind of row is loaded exactly as it was written.

use ganger_types::{
    Bytes, Change, Day, FailurePolicy, Group, InputRow, InputState, JobId, JobKey, Namespace,
    OperationNumber, Queue, ScheduleId, Tag, Timestamp, UniqueKey,
};

use super::StoreFixture;
use super::sample::{self, TODAY};
use super::script::{Script, put};
use crate::reader::Reader;
use crate::store::Loaded;

fn inputs() -> [InputRow; 4] {
    let id = || JobId::new("up").expect("short");
    let (dependency, policy) = (JobKey(1), FailurePolicy::Wait);
    let row = |slot, state| InputRow {
        job: JobKey(2),
        slot,
        state,
    };
    [
        row(0, InputState::Value(Bytes::from_static(b"given"))),
        row(
            1,
            InputState::Missing {
                dependency,
                id: id(),
                policy,
            },
        ),
        row(2, InputState::Ignored { id: id() }),
        row(
            InputRow::EDGE_FIRST,
            InputState::Delivered {
                dependency,
                id: id(),
                policy: FailurePolicy::Fail,
            },
        ),
    ]
}

/// One change of each kind that writes a row, and the rows to load for them.
fn all_rows() -> (Vec<Change>, Vec<Loaded>) {
    let default = Namespace::default;
    let tag = || Tag::from_static("red");
    let group = || Group::from_static("io");
    let id = || JobId::new("followed").expect("short");
    let mut changes = vec![
        Change::PutNamespace(Box::new(sample::namespace("other"))),
        Change::PutQueue(Box::new(sample::queue("images"))),
        Change::PutSchedule(Box::new(sample::schedule("nightly"))),
        put(&sample::job(1)),
        put(&sample::full_job(2)),
        Change::PutPayload {
            key: JobKey(2),
            payload: Bytes::from_static(b"payload"),
        },
        Change::PutLease(Box::new(sample::lease(1, "w1"))),
        Change::PutUnique(Box::new(sample::unique("once"))),
        Change::PutIdempotencyRecord(Box::new(sample::idempotency_record("again"))),
        Change::PutTagCount(default(), tag(), 7),
        Change::PutGroupCount(default(), group(), 8),
        Change::PutTracked(default(), id(), Some(Timestamp(5))),
        Change::PutStatistics(Box::new(sample::statistics(TODAY))),
        Change::PutOperation(Box::new(sample::operation(7))),
        Change::PutOperation(Box::new(sample::operation(300))),
        Change::PutAudit(Box::new(sample::audit(9))),
        Change::PutAudit(Box::new(sample::audit(256))),
    ];
    changes.extend(inputs().map(Change::PutInput));
    let [_, missing, _, delivered] = inputs();
    let rows = vec![
        Loaded::Namespace(Box::new(sample::namespace("other"))),
        Loaded::Queue(Box::new(sample::queue("images"))),
        Loaded::Schedule(Box::new(sample::schedule("nightly"))),
        Loaded::Job(Box::new(sample::job(1))),
        Loaded::Job(Box::new(sample::full_job(2))),
        Loaded::Input(missing),
        Loaded::Input(delivered),
        Loaded::Lease(Box::new(sample::lease(1, "w1"))),
        Loaded::Unique(Box::new(sample::unique("once"))),
        Loaded::IdempotencyRecord(Box::new(sample::idempotency_record("again"))),
        Loaded::TagCount(default(), tag(), 7),
        Loaded::GroupCount(default(), group(), 8),
        Loaded::Tracked(default(), id(), Timestamp(5)),
        Loaded::Statistics(Box::new(sample::statistics(TODAY))),
        Loaded::Operation(Box::new(sample::operation(7))),
        Loaded::Operation(Box::new(sample::operation(300))),
        Loaded::Audit(Box::new(sample::audit(9))),
        Loaded::Audit(Box::new(sample::audit(256))),
    ];
    (changes, rows)
}

/// Every kind of row survives unchanged (`rel A3`).
pub fn every_kind_of_row_is_given_back_as_it_was_put<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let (changes, rows) = all_rows();
    script.put(changes.clone());
    assert_eq!(script.loaded(), rows);
    script.crash();
    assert_eq!(script.loaded(), rows);
    assert_eq!(
        script.reader().inputs(JobKey(2), 0, 10).expect("reads"),
        inputs()
    );
    let payload = script.reader().payload(JobKey(2)).expect("reads");
    assert_eq!(payload, Some(Bytes::from_static(b"payload")));
    // Write the same rows again.
    script.put(changes);
    assert_eq!(script.loaded(), rows);
}

/// Removed rows stay removed after a crash (`rel A3`).
pub fn removed_rows_are_gone_after_a_crash<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let (changes, rows) = all_rows();
    script.put(changes);
    let default = Namespace::default;
    script.put(vec![
        Change::RemoveQueue(default(), Queue::from_static("images")),
        Change::RemoveSchedule(default(), ScheduleId::from_static("nightly")),
        Change::RemoveUnique(default(), UniqueKey::from_static("once")),
        Change::RemoveIdempotencyRecord(
            default(),
            ganger_types::IdempotencyKey::from_static("again"),
        ),
        Change::PutTagCount(default(), Tag::from_static("red"), 0),
        Change::PutGroupCount(default(), Group::from_static("io"), 0),
        Change::PutTracked(default(), JobId::new("followed").expect("short"), None),
        Change::RemoveOperation(OperationNumber(7)),
        Change::RemoveAudit(9),
        Change::RemoveLease(JobKey(1)),
        Change::RemoveInput {
            job: JobKey(2),
            slot: 1,
        },
        Change::RemoveJob(JobKey(1)),
    ]);
    let [_, _, _, delivered] = inputs();
    let left = [
        rows[0].clone(),
        Loaded::Job(Box::new(sample::full_job(2))),
        Loaded::Input(delivered),
        Loaded::Statistics(Box::new(sample::statistics(TODAY))),
        Loaded::Operation(Box::new(sample::operation(300))),
        Loaded::Audit(Box::new(sample::audit(256))),
    ];
    assert_eq!(script.loaded(), left);
    script.crash();
    assert_eq!(script.loaded(), left);
}

/// Only the days that the engine still counts are loaded; a reader finds the others.
pub fn statistics_older_than_yesterday_stay_in_the_store<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let days = [TODAY.0 - 2, TODAY.0 - 1, TODAY.0].map(Day);
    let records = days.map(|day| Box::new(sample::statistics(day)));
    script.put(records.clone().map(Change::PutStatistics).into());
    let [old, yesterday, today] = records;
    assert_eq!(
        script.loaded(),
        [Loaded::Statistics(yesterday), Loaded::Statistics(today)]
    );
    let (namespace, queue) = (Namespace::default(), Queue::default());
    let found = script
        .reader()
        .statistics(&namespace, &queue, days[0])
        .expect("reads");
    assert_eq!(found, Some(*old));
    assert_eq!(
        script
            .reader()
            .statistics(&namespace, &queue, Day(1))
            .expect("reads"),
        None
    );
}

/// The engine relies on the order of [`Loaded`].
pub fn rows_are_loaded_in_their_order<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    for key in [9, 300, 70_000, 1, 40] {
        script.put(vec![
            put(&sample::job(key)),
            Change::PutLease(Box::new(sample::lease(key, "w"))),
        ]);
    }
    let keys: Vec<u64> = script.live().iter().map(|job| job.key.0).collect();
    assert_eq!(keys, [1, 9, 40, 300, 70_000]);
    let is_lease = |row: &Loaded| matches!(row, Loaded::Lease(_));
    let rows = script.loaded();
    assert!(
        rows.is_sorted_by_key(is_lease),
        "leases come after all jobs"
    );
}
