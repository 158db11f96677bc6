//! Commits that are written into the tables together leave the same rows as each by itself.

use ganger_store::suite::sample::{ended, job, lease};
use ganger_store::{Reader, Store};
use ganger_store_embedded::{EmbeddedStore, check};
use ganger_types::{
    Bytes, Change, InputRow, InputState, JobKey, JobRecord, Namespace, Outcome, Queue, Tag,
};
use proptest::prelude::*;

const JOBS: u64 = 5;

/// An operation on one of the jobs; skipped where it does not apply.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Put,
    Tag,
    Lease,
    EndLease,
    Finish,
    TagFinished,
    Retry,
    Remove,
    Input,
    TakeInputBack,
    Log,
}

/// The stage of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum JobStage {
    #[default]
    Absent,
    Live,
    Leased,
    Finished,
    Gone,
}

#[derive(Default)]
struct Jobs {
    stands: [JobStage; 5],
    /// Length in bytes of each job's log.
    logged: [u64; 5],
    orders: u64,
}

impl Jobs {
    /// Returns the changes of an operation; empty if it does not apply.
    fn changes(&mut self, number: usize, action: Operation) -> Vec<Change> {
        let key = u64::try_from(number).expect("a small number");
        let stand = self.stands[number];
        let is_live = matches!(stand, JobStage::Live | JobStage::Leased);
        let (changes, next) = match action {
            Operation::Put if stand == JobStage::Absent => (put(key), JobStage::Live),
            Operation::Tag if is_live => (vec![Change::PutJob(Box::new(tagged(key)))], stand),
            Operation::Lease if stand == JobStage::Live => (
                vec![Change::PutLease(Box::new(lease(key, "w")))],
                JobStage::Leased,
            ),
            Operation::EndLease if stand == JobStage::Leased => {
                let changes = vec![
                    Change::RemoveLease(JobKey(key)),
                    Change::PutJob(Box::new(job(key))),
                ];
                (changes, JobStage::Live)
            }
            Operation::Finish if is_live => {
                self.orders += 1;
                (vec![finish(key, self.orders)], JobStage::Finished)
            }
            Operation::TagFinished if stand == JobStage::Finished => {
                let record = ended(tagged(key), Outcome::Succeeded, key, 5);
                (vec![Change::PutFinished(Box::new(record))], stand)
            }
            Operation::Retry if stand == JobStage::Finished => {
                let changes = vec![
                    Change::RetryJob(JobKey(key)),
                    Change::PutJob(Box::new(job(key))),
                ];
                (changes, JobStage::Live)
            }
            Operation::Remove if !matches!(stand, JobStage::Absent | JobStage::Gone) => {
                (vec![Change::RemoveJob(JobKey(key))], JobStage::Gone)
            }
            Operation::Input if is_live => (vec![Change::PutInput(input(key))], stand),
            Operation::TakeInputBack if is_live => {
                let (job, slot) = (JobKey(key), 0);
                (vec![Change::RemoveInput { job, slot }], stand)
            }
            Operation::Log if is_live => {
                let offset = self.logged[number];
                self.logged[number] += 5;
                (vec![line(key, offset)], stand)
            }
            _ => return Vec::new(),
        };
        self.stands[number] = next;
        changes
    }
}

fn tagged(key: u64) -> JobRecord {
    JobRecord {
        tags: vec![Tag::from_static("red")],
        ..job(key)
    }
}

fn put(key: u64) -> Vec<Change> {
    let payload = Change::PutPayload {
        key: JobKey(key),
        payload: Bytes::from(format!("payload {key}")),
    };
    vec![Change::PutJob(Box::new(job(key))), payload]
}

fn finish(key: u64, order: u64) -> Change {
    let result = Bytes::from(format!("result {order}"));
    let mut record = Box::new(ended(job(key), Outcome::Succeeded, order, 5));
    let end = record.finished.as_mut().expect("it has ended");
    end.result_bytes = u64::try_from(result.len()).ok();
    Change::FinishJob {
        record,
        result: Some(result),
    }
}

fn input(key: u64) -> InputRow {
    InputRow {
        job: JobKey(key),
        slot: 0,
        state: InputState::Value(Bytes::from_static(b"given")),
    }
}

fn line(key: u64, offset: u64) -> Change {
    Change::AppendLog {
        key: JobKey(key),
        attempt: 1,
        offset,
        at: ganger_store::suite::sample::MORNING,
        bytes: Bytes::from_static(b"line\n"),
    }
}

/// Returns everything that can be read, as text.
fn shown(store: &mut EmbeddedStore) -> Vec<String> {
    let mut shown = Vec::new();
    let mut reader = store.reader().expect("a reader opens");
    for key in (0..JOBS).map(JobKey) {
        shown.push(format!("{:?}", reader.job(key).expect("reads")));
        shown.push(format!("{:?}", reader.payload(key).expect("reads")));
        shown.push(format!("{:?}", reader.result(key).expect("reads")));
        shown.push(format!("{:?}", reader.inputs(key, 0, 9).expect("reads")));
        shown.push(format!("{:?}", reader.log(key, (0, 0), 99).expect("reads")));
    }
    // Loading writes waiting commits into the tables first, so it comes last.
    store
        .load(&mut |row| shown.push(format!("{row:?}")))
        .expect("loads");
    shown
}

fn actions() -> impl Strategy<Value = Vec<(usize, Operation, bool)>> {
    let action = prop_oneof![
        4 => Just(Operation::Put),
        2 => Just(Operation::Tag),
        3 => Just(Operation::Lease),
        1 => Just(Operation::EndLease),
        3 => Just(Operation::Finish),
        1 => Just(Operation::TagFinished),
        1 => Just(Operation::Retry),
        1 => Just(Operation::Remove),
        1 => Just(Operation::Input),
        1 => Just(Operation::TakeInputBack),
        1 => Just(Operation::Log),
    ];
    proptest::collection::vec((0..5_usize, action, proptest::bool::weighted(0.1)), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn commits_written_together_leave_the_same_as_each_by_itself(actions in actions()) {
        let directory = crate::kit::directory();
        let paths = ["together.db", "each.db"].map(|name| directory.path().join(name));
        let mut together = crate::kit::Written::start(&paths[0], crate::kit::WITHOUT_THREAD());
        let mut each = crate::kit::Written::start(&paths[1], crate::kit::WITHOUT_LOG());
        let mut jobs = Jobs::default();
        for (number, action, is_read) in actions {
            let mut changes = jobs.changes(number, action);
            if changes.is_empty() {
                continue;
            }
            changes.push(Change::RemoveQueue(Namespace::default(), Queue::from_static("none")));
            together.commit(changes.clone());
            each.commit(changes);
            if is_read {
                prop_assert_eq!(shown(&mut together.store), shown(&mut each.store));
            }
        }
        prop_assert_eq!(shown(&mut together.store), shown(&mut each.store));
        drop((together, each));
        let [together, each] = paths.map(|path| check(path, |_| {}).expect("it can be read"));
        prop_assert_eq!(together, each);
    }
}
