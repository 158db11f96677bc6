//! Ids, edges, logs, and searches of retention.

use std::collections::BTreeSet;

use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::{
    Bytes, Change, FailurePolicy, IdTag, InputRow, InputState, JobId, JobKey, JobRecord, Namespace,
    Outcome, Queue, Timestamp,
};

use super::StoreFixture;
use super::sample::{MORNING, ended, full_job, job};
use super::script::{Script, finish, put};
use crate::reader::{LogChunk, Reader};

/// This includes client-given ids that have the form of engine-made ones.
pub fn jobs_are_found_by_given_and_made_ids<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let mut posing = job(3);
    posing.id = JobId::made(JobKey(1), IdTag(99));
    posing.id_is_given = true;
    let done = ended(full_job(2), Outcome::Succeeded, 1, 5);
    script.put(vec![
        put(&job(1)),
        put(&full_job(2)),
        put(&posing),
        put(&job(4)),
    ]);
    script.put(vec![
        finish(&done),
        finish(&ended(job(4), Outcome::Failed, 2, 6)),
    ]);
    script.crash();
    let mut reader = script.reader();
    let default = Namespace::default();
    for (id, key) in [
        (job(1).id, 1),
        (full_job(2).id, 2),
        (posing.id, 3),
        (job(4).id, 4),
    ] {
        let found = reader
            .find(&default, &id)
            .expect("reads")
            .expect("it is there");
        assert_eq!(found.record.key, JobKey(key));
        assert_eq!(
            reader
                .find(&Namespace::from_static("other"), &id)
                .expect("reads"),
            None
        );
    }
    let unknown = JobId::made(JobKey(1), IdTag(8));
    assert_eq!(reader.find(&default, &unknown).expect("reads"), None);
}

fn edge(job: u64, slot: u32, dependency: u64) -> InputRow {
    let id = JobId::new("up").expect("short");
    let (dependency, policy) = (JobKey(dependency), FailurePolicy::Fail);
    InputRow {
        job: JobKey(job),
        slot,
        state: InputState::Missing {
            dependency,
            id,
            policy,
        },
    }
}

/// Each dependent is returned once, however many edges it has.
pub fn dependents_are_found_from_their_dependency<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let rows = [edge(2, 0, 1), edge(2, 1, 1), edge(3, 0, 1), edge(4, 0, 2)];
    script.put((1..=4).map(|key| put(&job(key))).collect());
    script.put(rows.into_iter().map(Change::PutInput).collect());
    let mut reader = script.reader();
    assert_eq!(
        reader.dependents(JobKey(1), 9).expect("reads"),
        [JobKey(2), JobKey(3)]
    );
    assert_eq!(reader.dependents(JobKey(1), 1).expect("reads"), [JobKey(2)]);
    assert_eq!(reader.dependents(JobKey(4), 9).expect("reads"), []);
    script.put(vec![Change::RemoveInput {
        job: JobKey(3),
        slot: 0,
    }]);
    assert_eq!(
        script.reader().dependents(JobKey(1), 9).expect("reads"),
        [JobKey(2)]
    );
}

/// Inputs are returned in pages, from any slot on.
pub fn inputs_come_in_order_of_slots<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let slots = [300, 0, InputRow::EDGE_FIRST, 5];
    script.put(vec![put(&job(1)), put(&job(2))]);
    script.put(slots.map(|slot| Change::PutInput(edge(2, slot, 1))).into());
    let mut reader = script.reader();
    let mut slots_from = |from, limit| -> Vec<u32> {
        let rows = reader.inputs(JobKey(2), from, limit).expect("reads");
        rows.into_iter().map(|row| row.slot).collect()
    };
    assert_eq!(slots_from(0, 9), [0, 5, 300, InputRow::EDGE_FIRST]);
    assert_eq!(slots_from(1, 2), [5, 300]);
}

/// A log is read from its beginning, from the end of a chunk, and from the middle of one.
pub fn a_log_is_read_piece_by_piece<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let piece = |attempt, offset, text: &'static str| Change::AppendLog {
        key: JobKey(1),
        attempt,
        offset,
        at: MORNING,
        bytes: Bytes::from_static(text.as_bytes()),
    };
    script.put(vec![put(&job(1)), piece(1, 0, "one"), piece(1, 3, "two")]);
    script.put(vec![piece(2, 0, "three"), piece(2, 0, "three")]);
    script.crash();
    let mut reader = script.reader();
    let mut read = |after, bytes| -> Vec<(u32, u64, Bytes)> {
        let chunks: Vec<LogChunk> = reader.log(JobKey(1), after, bytes).expect("reads");
        chunks
            .into_iter()
            .map(|chunk| (chunk.attempt, chunk.offset, chunk.bytes))
            .collect()
    };
    let (one, two) = ((1, 0, Bytes::from("one")), (1, 3, Bytes::from("two")));
    let three = (2, 0, Bytes::from("three"));
    assert_eq!(read((0, 0), 99), [one.clone(), two.clone(), three.clone()]);
    assert_eq!(read((1, 0), 3), [one]);
    assert_eq!(read((1, 3), 99), [two.clone(), three.clone()]);
    assert_eq!(read((1, 4), 99), [(1, 4, Bytes::from("wo")), three.clone()]);
    assert_eq!(read((1, 6), 99), [three]);
    assert_eq!(read((2, 5), 99), []);
}

fn kept(mut record: JobRecord, until: Option<Timestamp>) -> JobRecord {
    record.finished.as_mut().expect("it has ended").keep_until = Some(until);
    record
}

/// Ten successes with a clock that jumped back after the fifth, of which job 2 is kept forever and job 3 for 2 us; a
/// failure; and a success in another queue.
fn endings() -> Vec<JobRecord> {
    let good = |key| {
        ended(
            job(key),
            Outcome::Succeeded,
            key,
            if key > 5 { key } else { key + 100 },
        )
    };
    let mut records: Vec<JobRecord> = (1..=10).map(good).collect();
    records[1] = kept(records[1].clone(), None);
    records[2] = kept(records[2].clone(), Some(Timestamp(MORNING.0 + 2)));
    records.push(ended(job(11), Outcome::Failed, 11, 1));
    let mut elsewhere = ended(job(12), Outcome::Succeeded, 12, 1);
    elsewhere.queue = Queue::from_static("images");
    records.push(elsewhere);
    records
}

fn expired_jobs<G: StoreFixture>(
    fixture: &mut G,
    query: &ExpiredJobsQuery,
    limit: usize,
) -> (Vec<u64>, BTreeSet<bool>) {
    let mut script = Script::start(fixture);
    script.put(endings().iter().map(put_live).collect());
    script.put(endings().iter().map(finish).collect());
    let found: Vec<ExpiredJob> = script.reader().expired_jobs(query, limit).expect("reads");
    let keys = found.iter().map(|expired| expired.record.key.0).collect();
    (
        keys,
        found.iter().map(|expired| expired.beyond_count).collect(),
    )
}

fn put_live(record: &JobRecord) -> Change {
    put(&job(record.key.0))
}

fn by_age(after: u64) -> ExpiredJobsQuery {
    ExpiredJobsQuery::ByAge {
        namespace: Namespace::default(),
        queue: Queue::default(),
        outcome: Outcome::Succeeded,
        before: Timestamp(MORNING.0 + after),
    }
}

/// Jobs come in order of the time at which they ended.
pub fn expired_jobs_by_age_come_oldest_first_without_those_that_keep_themselves<G: StoreFixture>(
    fixture: &mut G,
) {
    let no = BTreeSet::from([false]);
    assert_eq!(
        expired_jobs(fixture, &by_age(1_000), 99),
        (vec![6, 7, 8, 9, 10, 1, 4, 5], no.clone())
    );
    assert_eq!(
        expired_jobs(fixture, &by_age(8), 99),
        (vec![6, 7, 8], no.clone())
    );
    assert_eq!(expired_jobs(fixture, &by_age(8), 2), (vec![6, 7], no));
}

/// Jobs come in the order in which they ended, whatever the clock was (`rel K3`).
pub fn expired_jobs_by_count_are_the_first_that_ended<G: StoreFixture>(fixture: &mut G) {
    let query = |excess| ExpiredJobsQuery::ByCount {
        namespace: Namespace::default(),
        queue: Queue::default(),
        outcome: Outcome::Succeeded,
        excess,
    };
    let yes = BTreeSet::from([true]);
    assert_eq!(
        expired_jobs(fixture, &query(6), 99),
        (vec![1, 4, 5, 6], yes.clone())
    );
    assert_eq!(expired_jobs(fixture, &query(6), 2), (vec![1, 4], yes));
}

/// Jobs that are kept forever are not returned.
pub fn expired_jobs_by_own_time_are_those_whose_time_has_passed<G: StoreFixture>(fixture: &mut G) {
    let query = |after| ExpiredJobsQuery::ByOwnTime {
        before: Timestamp(after),
    };
    let none = (vec![], BTreeSet::new());
    assert_eq!(expired_jobs(fixture, &query(MORNING.0 + 1), 99), none);
    assert_eq!(
        expired_jobs(fixture, &query(MORNING.0 + 2), 99),
        (vec![3], BTreeSet::from([false]))
    );
    assert_eq!(
        expired_jobs(fixture, &query(u64::MAX), 99),
        (vec![3], BTreeSet::from([false]))
    );
}
