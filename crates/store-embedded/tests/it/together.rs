//! Commits that come into the tables together leave the same behind as each by itself.

use ganger_store::suite::sample::{ended, job, lease};
use ganger_store::{Loaded, Reader, Store};
use ganger_store_embedded::{EmbeddedStore, check};
use ganger_types::{
    Bytes, Change, InputRow, InputState, JobKey, JobRecord, Namespace, Outcome, Queue, Tag,
};
use proptest::prelude::*;

const JOBS: u64 = 5;

/// Something that happens to one of the jobs; what makes no sense for it is left out.
#[derive(Clone, Copy, Debug)]
enum Deed {
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

/// Where a job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Stand {
    #[default]
    Absent,
    Live,
    Leased,
    Finished,
    Gone,
}

#[derive(Default)]
struct Jobs {
    stands: [Stand; 5],
    /// Bytes of each job's log.
    logged: [u64; 5],
    orders: u64,
}

impl Jobs {
    /// The changes of a deed, if it makes sense.
    fn changes(&mut self, number: usize, deed: Deed) -> Vec<Change> {
        let key = u64::try_from(number).expect("a small number");
        let stand = self.stands[number];
        let is_live = matches!(stand, Stand::Live | Stand::Leased);
        let (changes, next) = match deed {
            Deed::Put if stand == Stand::Absent => (put(key), Stand::Live),
            Deed::Tag if is_live => (vec![Change::PutJob(Box::new(tagged(key)))], stand),
            Deed::Lease if stand == Stand::Live => (
                vec![Change::PutLease(Box::new(lease(key, "w")))],
                Stand::Leased,
            ),
            Deed::EndLease if stand == Stand::Leased => {
                let changes = vec![
                    Change::RemoveLease(JobKey(key)),
                    Change::PutJob(Box::new(job(key))),
                ];
                (changes, Stand::Live)
            }
            Deed::Finish if is_live => {
                self.orders += 1;
                (vec![finish(key, self.orders)], Stand::Finished)
            }
            Deed::TagFinished if stand == Stand::Finished => {
                let record = ended(tagged(key), Outcome::Succeeded, key, 5);
                (vec![Change::PutFinished(Box::new(record))], stand)
            }
            Deed::Retry if stand == Stand::Finished => {
                let changes = vec![
                    Change::RetryJob(JobKey(key)),
                    Change::PutJob(Box::new(job(key))),
                ];
                (changes, Stand::Live)
            }
            Deed::Remove if !matches!(stand, Stand::Absent | Stand::Gone) => {
                (vec![Change::RemoveJob(JobKey(key))], Stand::Gone)
            }
            Deed::Input if is_live => (vec![Change::PutInput(input(key))], stand),
            Deed::TakeInputBack if is_live => {
                let (job, slot) = (JobKey(key), 0);
                (vec![Change::RemoveInput { job, slot }], stand)
            }
            Deed::Log if is_live => {
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

/// All that can be read, in words.
fn shown(store: &mut EmbeddedStore) -> Vec<String> {
    let mut rows: Vec<Loaded> = Vec::new();
    store.load(&mut |row| rows.push(row)).expect("loads");
    let mut shown: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    let mut reader = store.reader().expect("a reader opens");
    for key in (0..JOBS).map(JobKey) {
        shown.push(format!("{:?}", reader.job(key).expect("reads")));
        shown.push(format!("{:?}", reader.payload(key).expect("reads")));
        shown.push(format!("{:?}", reader.result(key).expect("reads")));
        shown.push(format!("{:?}", reader.inputs(key, 0, 9).expect("reads")));
        shown.push(format!("{:?}", reader.log(key, (0, 0), 99).expect("reads")));
    }
    shown
}

fn deeds() -> impl Strategy<Value = Vec<(usize, Deed, bool)>> {
    let deed = prop_oneof![
        4 => Just(Deed::Put),
        2 => Just(Deed::Tag),
        3 => Just(Deed::Lease),
        1 => Just(Deed::EndLease),
        3 => Just(Deed::Finish),
        1 => Just(Deed::TagFinished),
        1 => Just(Deed::Retry),
        1 => Just(Deed::Remove),
        1 => Just(Deed::Input),
        1 => Just(Deed::TakeInputBack),
        1 => Just(Deed::Log),
    ];
    proptest::collection::vec((0..5_usize, deed, proptest::bool::weighted(0.1)), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn commits_written_together_leave_the_same_as_each_by_itself(deeds in deeds()) {
        let directory = crate::kit::directory();
        let paths = ["together.db", "each.db"].map(|name| directory.path().join(name));
        let [mut together, mut each] = [&paths[0], &paths[1]].map(|path| crate::kit::Written::start(path));
        let mut jobs = Jobs::default();
        for (number, deed, is_read) in deeds {
            let mut changes = jobs.changes(number, deed);
            if changes.is_empty() {
                continue;
            }
            changes.push(Change::RemoveQueue(Namespace::default(), Queue::from_static("none")));
            together.commit(changes.clone());
            let [changes] = crate::kit::at_once(vec![changes]).try_into().expect("one");
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
