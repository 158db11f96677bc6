//! Moves of jobs between live and finished, with their other rows.

use ganger_types::{
    Bytes, Change, FailurePolicy, InputRow, InputState, JobId, JobKey, JobRecord, JobState,
    Outcome, Tag,
};

use super::StoreFixture;
use super::sample::{MORNING, ended, full_job, job, lease};
use super::script::{Script, finish, put};
use crate::reader::Reader;
use ganger_types::StoredJob;

const RESULT: Bytes = Bytes::from_static(b"result");

fn with_result(record: &JobRecord) -> Change {
    let mut record = record.clone();
    let end = record.finished.as_mut().expect("it has ended");
    end.result_bytes = Some(6);
    Change::FinishJob {
        record: Box::new(record),
        result: Some(RESULT),
    }
}

fn payload(key: u64) -> Change {
    Change::PutPayload {
        key: JobKey(key),
        payload: Bytes::from_static(b"payload"),
    }
}

fn log(key: u64) -> Change {
    let bytes = Bytes::from_static(b"line\n");
    Change::AppendLog {
        key: JobKey(key),
        attempt: 1,
        offset: 0,
        at: MORNING,
        bytes,
    }
}

fn input(job: u64, dependency: u64) -> Change {
    let id = JobId::new("up").expect("short");
    let (dependency, policy) = (JobKey(dependency), FailurePolicy::Fail);
    let state = InputState::Delivered {
        dependency,
        id,
        policy,
    };
    Change::PutInput(InputRow {
        job: JobKey(job),
        slot: 0,
        state,
    })
}

/// Only the last state of each row counts.
pub fn a_job_that_came_and_ended_in_one_commit_is_finished<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let end = ended(job(1), Outcome::Succeeded, 1, 5);
    script.put(vec![
        put(&job(1)),
        payload(1),
        Change::PutLease(Box::new(lease(1, "w"))),
        with_result(&end),
        put(&job(2)),
        Change::RemoveJob(JobKey(2)),
    ]);
    script.crash();
    assert_eq!(script.loaded(), []);
    let mut reader = script.reader();
    let found = reader.job(JobKey(1)).expect("reads").expect("it is there");
    assert_eq!(
        (found.record.state, found.lease),
        (JobState::Succeeded, None)
    );
    assert_eq!(reader.result(JobKey(1)).expect("reads"), Some(RESULT));
    assert_eq!(reader.job(JobKey(2)).expect("reads"), None);
}

/// A finished job keeps its data (`rel K2`).
pub fn a_finished_job_keeps_payload_inputs_and_log<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    script.put(vec![
        put(&job(1)),
        put(&full_job(2)),
        payload(2),
        input(2, 1),
        log(2),
    ]);
    script.put(vec![Change::PutLease(Box::new(lease(2, "w")))]);
    script.put(vec![with_result(&ended(
        full_job(2),
        Outcome::Succeeded,
        1,
        5,
    ))]);
    script.crash();
    assert_eq!(script.live(), [job(1)]);
    assert_eq!(
        script.loaded().len(),
        1,
        "neither lease nor inputs of the finished are loaded"
    );
    let mut reader = script.reader();
    assert!(reader.payload(JobKey(2)).expect("reads").is_some());
    assert_eq!(reader.inputs(JobKey(2), 0, 9).expect("reads").len(), 1);
    assert_eq!(reader.log(JobKey(2), (0, 0), 99).expect("reads").len(), 1);
    assert_eq!(reader.result(JobKey(2)).expect("reads"), Some(RESULT));
}

/// A retried job starts again without its old result (`rel A2`).
pub fn a_retried_job_is_live_without_its_result<G: StoreFixture>(fixture: &mut G) {
    for record in [job(2), full_job(2)] {
        let mut script = Script::start(fixture);
        script.put(vec![put(&record), payload(2)]);
        script.put(vec![with_result(&ended(
            record.clone(),
            Outcome::Failed,
            1,
            5,
        ))]);
        script.put(vec![Change::RetryJob(JobKey(2)), put(&record)]);
        script.crash();
        assert_eq!(script.live(), std::slice::from_ref(&record));
        let mut reader = script.reader();
        assert_eq!(reader.result(JobKey(2)).expect("reads"), None);
        let found = reader.job(JobKey(2)).expect("reads");
        assert_eq!(found, Some(StoredJob::new(record, None)));
        assert!(reader.payload(JobKey(2)).expect("reads").is_some());
    }
}

/// Whether a payload is new, old, removed or was never there: many at once are as each by itself.
pub fn payloads_read_together_are_those_read_one_by_one<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    script.put(
        (1..=3)
            .flat_map(|key| [put(&job(key)), payload(key)])
            .collect(),
    );
    script.crash();
    script.loaded();
    let other = Bytes::from_static(b"another payload");
    script.put(vec![
        put(&job(4)),
        payload(4),
        Change::RemoveJob(JobKey(2)),
        Change::PutPayload {
            key: JobKey(3),
            payload: other.clone(),
        },
        Change::PutLease(Box::new(lease(1, "w"))),
    ]);
    let keys = [4, 9, 3, 2, 1, 3].map(JobKey);
    let old = Bytes::from_static(b"payload");
    let expected = [
        Some(&old),
        None,
        Some(&other),
        None,
        Some(&old),
        Some(&other),
    ];
    let mut reader = script.reader();
    let together = reader.payloads(&keys);
    for ((key, found), expected) in keys.into_iter().zip(together).zip(expected) {
        assert_eq!(found.expect("reads").as_ref(), expected, "job {key}");
        assert_eq!(reader.payload(key).expect("reads").as_ref(), expected);
    }
    assert!(reader.payloads(&[]).is_empty());
}

/// A removed job leaves no rows (`rel K1`).
pub fn a_removed_job_leaves_nothing_behind<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    script.put(vec![
        put(&job(1)),
        put(&full_job(2)),
        payload(2),
        input(2, 1),
        log(2),
    ]);
    script.put(vec![
        put(&job(3)),
        payload(3),
        Change::PutLease(Box::new(lease(3, "w"))),
    ]);
    script.put(vec![with_result(&ended(
        full_job(2),
        Outcome::Cancelled,
        1,
        5,
    ))]);
    script.put(vec![
        Change::RemoveJob(JobKey(2)),
        Change::RemoveJob(JobKey(3)),
    ]);
    script.crash();
    assert_eq!(script.loaded().len(), 1);
    let mut reader = script.reader();
    for key in [JobKey(2), JobKey(3)] {
        assert_eq!(reader.job(key).expect("reads"), None);
        assert_eq!(reader.payload(key).expect("reads"), None);
        assert_eq!(reader.result(key).expect("reads"), None);
        assert_eq!(reader.inputs(key, 0, 9).expect("reads"), []);
        assert_eq!(reader.log(key, (0, 0), 99).expect("reads"), []);
    }
    assert_eq!(reader.dependents(JobKey(1), 9).expect("reads"), []);
    let id = full_job(2).id;
    assert_eq!(reader.find(&job(1).namespace, &id).expect("reads"), None);
}

/// The order of changes counts within one commit too.
pub fn a_job_retried_and_finished_in_one_commit_has_its_new_result<G: StoreFixture>(
    fixture: &mut G,
) {
    let mut script = Script::start(fixture);
    script.put(vec![put(&full_job(1))]);
    script.put(vec![finish(&ended(full_job(1), Outcome::Failed, 1, 5))]);
    let end = ended(full_job(1), Outcome::Succeeded, 2, 6);
    script.put(vec![
        Change::RetryJob(JobKey(1)),
        put(&full_job(1)),
        with_result(&end),
    ]);
    script.crash();
    assert_eq!(script.loaded(), []);
    assert_eq!(
        script.reader().result(JobKey(1)).expect("reads"),
        Some(RESULT)
    );
    let found = script
        .reader()
        .job(JobKey(1))
        .expect("reads")
        .expect("it is there");
    assert_eq!(found.record.finished.map(|end| end.order), Some(2));
}

/// A finished job can be written again, for example with other tags.
pub fn a_rewritten_finished_job_keeps_its_result<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let mut end = ended(job(1), Outcome::Succeeded, 1, 5);
    script.put(vec![with_result(&end)]);
    end.finished.as_mut().expect("it has ended").result_bytes = Some(6);
    end.tags = vec![Tag::from_static("seen")];
    script.put(vec![Change::PutFinished(Box::new(end.clone()))]);
    script.crash();
    let mut reader = script.reader();
    assert_eq!(
        reader.job(JobKey(1)).expect("reads"),
        Some(StoredJob::new(end, None))
    );
    assert_eq!(reader.result(JobKey(1)).expect("reads"), Some(RESULT));
}

/// The record has the state before the lease; readers see the running attempt.
pub fn a_lease_shows_its_job_as_running<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    script.put(vec![
        put(&job(1)),
        Change::PutLease(Box::new(lease(1, "w"))),
    ]);
    let found = script
        .reader()
        .job(JobKey(1))
        .expect("reads")
        .expect("it is there");
    assert_eq!(
        (found.record.state, found.record.attempt),
        (JobState::Running, 4)
    );
    assert_eq!(found.lease, Some(lease(1, "w")));
    assert_eq!(script.live(), [job(1)]);
    script.put(vec![Change::RemoveLease(JobKey(1))]);
    let found = script
        .reader()
        .job(JobKey(1))
        .expect("reads")
        .expect("it is there");
    assert_eq!(found, StoredJob::new(job(1), None));
}
