//! Random lives of jobs, compared with the memory store: what is loaded, listed, counted and read, whether rows are
//! written yet or not, and after the shard has moved to another owner.

use ganger_store::suite::sample::{MORNING, ended, failure, job, lease};
use ganger_store::{Loaded, MemoryStore, Reader, Store};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Change, Epoch, FailurePolicy, InputRow, InputState, JobId, JobKey, JobRecord, JobState,
    JobStates, Kind, Namespace, Outcome, Queue, Tag, Worker,
};

use crate::support::{Ground, store, with_changes};

/// Commits in a run, and the number of jobs that they are about.
const COMMITS: u64 = 100;
const JOBS: u64 = 40;

/// Numbers from a seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Jobs as the commits left them.
#[derive(Default)]
struct Jobs {
    live: Vec<JobRecord>,
    finished: Vec<JobRecord>,
    next: u64,
    order: u64,
}

impl Jobs {
    fn change(&mut self, draws: &mut Draws, changes: &mut Vec<Change>) {
        match draws.below(12) {
            0..=3 if self.next < JOBS => self.enqueue(draws, changes),
            4 | 5 => self.lease(draws, changes),
            6 | 7 => self.finish(draws, changes),
            8 => self.alter(draws, changes),
            9 => self.retry(draws, changes),
            10 => self.remove(draws, changes),
            _ => self.belongings(draws, changes),
        }
    }

    fn pick(jobs: &[JobRecord], draws: &mut Draws) -> Option<usize> {
        let count = u64::try_from(jobs.len()).expect("few");
        (count > 0).then(|| usize::try_from(draws.below(count)).expect("few"))
    }

    fn enqueue(&mut self, draws: &mut Draws, changes: &mut Vec<Change>) {
        // Some numbers are far from the others, and some are never used.
        self.next += 1 + draws.below(2);
        let far = if draws.below(4) == 0 { 3 << 20 } else { 0 };
        let mut record = job(self.next + far);
        if draws.below(3) == 0 {
            record.queue = Queue::from_static("images");
        }
        if draws.below(3) == 0 {
            record.kind = Kind::from_static("thumb");
        }
        if draws.below(5) == 0 {
            record.id = JobId::new(format!("id-{}", record.key)).expect("short");
            record.id_is_given = true;
        }
        Self::tag(&mut record, draws);
        changes.push(Change::PutJob(Box::new(record.clone())));
        if draws.below(2) == 0 {
            let payload = Bytes::from(vec![b'p'; usize::try_from(draws.below(50)).expect("few")]);
            let key = record.key;
            changes.push(Change::PutPayload { key, payload });
        }
        self.live.push(record);
    }

    fn tag(record: &mut JobRecord, draws: &mut Draws) {
        let tags = ["red", "blue", "green"].into_iter();
        record.tags = tags
            .filter(|_| draws.below(4) == 0)
            .map(Tag::from_static)
            .collect();
    }

    fn lease(&mut self, draws: &mut Draws, changes: &mut Vec<Change>) {
        let Some(place) = Self::pick(&self.live, draws) else {
            return;
        };
        let key = self.live[place].key;
        changes.push(if draws.below(3) == 0 {
            Change::RemoveLease(key)
        } else {
            let worker = ["w1", "w2"][usize::try_from(draws.below(2)).expect("few")];
            Change::PutLease(Box::new(lease(key.0, worker)))
        });
    }

    fn finish(&mut self, draws: &mut Draws, changes: &mut Vec<Change>) {
        let Some(place) = Self::pick(&self.live, draws) else {
            return;
        };
        let record = self.live.swap_remove(place);
        self.order += 1;
        let outcomes = [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled];
        let outcome = outcomes[usize::try_from(draws.below(3)).expect("few")];
        let mut record = ended(record, outcome, self.order, self.order);
        if outcome == Outcome::Failed {
            record.failure = Some(failure("io", "it broke"));
        }
        let result = (draws.below(2) == 0).then(|| Bytes::from_static(b"result"));
        if let (Some(end), Some(result)) = (&mut record.finished, &result) {
            end.result_bytes = Some(u32::try_from(result.len()).expect("small").into());
        }
        changes.push(Change::FinishJob {
            record: Box::new(record.clone()),
            result,
        });
        self.finished.push(record);
    }

    fn alter(&mut self, draws: &mut Draws, changes: &mut Vec<Change>) {
        let is_live = draws.below(2) == 0;
        let jobs = if is_live {
            &mut self.live
        } else {
            &mut self.finished
        };
        let Some(place) = Self::pick(jobs, draws) else {
            return;
        };
        Self::tag(&mut jobs[place], draws);
        let record = Box::new(jobs[place].clone());
        changes.push(if is_live {
            Change::PutJob(record)
        } else {
            Change::PutFinished(record)
        });
    }

    fn retry(&mut self, draws: &mut Draws, changes: &mut Vec<Change>) {
        let Some(place) = Self::pick(&self.finished, draws) else {
            return;
        };
        let mut record = self.finished.swap_remove(place);
        record.finished = None;
        record.failure = None;
        record.state = JobState::Ready;
        changes.push(Change::RetryJob(record.key));
        changes.push(Change::PutJob(Box::new(record.clone())));
        self.live.push(record);
    }

    fn remove(&mut self, draws: &mut Draws, changes: &mut Vec<Change>) {
        let Some(place) = Self::pick(&self.finished, draws) else {
            return;
        };
        let record = self.finished.swap_remove(place);
        changes.push(Change::RemoveJob(record.key));
    }

    fn belongings(&mut self, draws: &mut Draws, changes: &mut Vec<Change>) {
        let Some(place) = Self::pick(&self.live, draws) else {
            return;
        };
        let key = self.live[place].key;
        let slot = u32::try_from(draws.below(3)).expect("few");
        let dependency = JobKey(1 + draws.below(JOBS));
        let id = JobId::new("up").expect("short");
        let policy = FailurePolicy::Fail;
        changes.push(match draws.below(4) {
            0 => Change::RemoveInput { job: key, slot },
            1 => Change::AppendLog {
                key,
                attempt: slot,
                offset: draws.below(3) * 4,
                at: MORNING,
                bytes: Bytes::from_static(b"line"),
            },
            2 => Change::PutInput(InputRow {
                job: key,
                slot,
                state: InputState::Value(Bytes::from_static(b"given")),
            }),
            _ => Change::PutInput(InputRow {
                job: key,
                slot,
                state: InputState::Missing {
                    dependency,
                    id,
                    policy,
                },
            }),
        });
    }
}

fn loaded<S: Store>(store: &mut S) -> Vec<Loaded> {
    let mut rows = Vec::new();
    store.load(&mut |row| rows.push(row)).expect("it loads");
    rows
}

fn queries() -> Vec<JobQuery> {
    let plain = || JobQuery {
        limit: 7,
        ..JobQuery::default()
    };
    let mut queries = vec![plain()];
    let mut add = |set: fn(&mut JobQuery)| {
        let mut query = plain();
        set(&mut query);
        queries.push(query);
    };
    add(|query| query.newest_first = true);
    add(|query| query.tags = vec![Tag::from_static("red")]);
    add(|query| query.queue = Some(Queue::from_static("images")));
    add(|query| query.states = JobStates::ENDED);
    add(|query| query.states = JobStates::LIVE);
    add(|query| query.states = JobState::Running.into());
    add(|query| query.states = JobState::Failed.into());
    add(|query| query.worker = Some(Worker::from_static("w1")));
    add(|query| query.kind = Some(Kind::from_static("thumb")));
    add(|query| {
        query.states = JobState::Succeeded.into();
        query.queue = Some(Queue::default());
    });
    add(|query| {
        query.tags = vec![Tag::from_static("blue")];
        query.states = JobStates::ENDED;
    });
    queries
}

fn compare_jobs(one: &mut impl Reader, other: &mut impl Reader, keys: &[u64]) {
    for key in keys.iter().map(|key| JobKey(*key)) {
        let found = one.job(key).expect("reads");
        assert_eq!(found, other.job(key).expect("reads"), "job {key}");
        if let Some(found) = &found {
            let id = &found.record.id;
            let namespace = Namespace::default();
            let by_id = one.find(&namespace, id).expect("reads");
            assert_eq!(by_id, other.find(&namespace, id).expect("reads"), "{id}");
        }
        assert_eq!(
            one.payload(key).expect("reads"),
            other.payload(key).expect("reads"),
            "payload of {key}"
        );
        assert_eq!(
            one.result(key).expect("reads"),
            other.result(key).expect("reads"),
            "result of {key}"
        );
        assert_eq!(
            one.inputs(key, 0, 9).expect("reads"),
            other.inputs(key, 0, 9).expect("reads"),
            "inputs of {key}"
        );
    }
}

fn compare_lists(one: &mut impl Reader, other: &mut impl Reader, keys: &[u64]) {
    // How many records a store looks at depends on its indexes.
    for query in queries() {
        let list = |reader: &mut dyn Reader| {
            let page = reader.list(&query).expect("lists");
            let found = u64::try_from(page.jobs.len()).expect("a page is small");
            assert!(page.looked.records >= found, "{page:?}");
            (page.jobs, page.next, page.looked.is_cut)
        };
        assert_eq!(list(one), list(other), "{query:?}");
        let count = |reader: &mut dyn Reader| {
            let count = reader.count(&query).expect("counts");
            assert!(count.looked.records >= count.jobs, "{count:?}");
            (count.jobs, count.looked.is_cut)
        };
        assert_eq!(count(one), count(other), "{query:?}");
    }
    for key in keys.iter().map(|key| JobKey(*key)) {
        let after = (0, 0);
        assert_eq!(
            one.log(key, after, 99).expect("reads"),
            other.log(key, after, 99).expect("reads"),
            "log of {key}"
        );
        assert_eq!(
            one.dependents(key, 99).expect("reads"),
            other.dependents(key, 99).expect("reads"),
            "dependents of {key}"
        );
    }
}

fn run(ground: &mut Ground, seed: u64) {
    let number = ground.add_shard();
    let mut settings = ground.settings();
    settings.limits.has_row_thread = false;
    // Some commits are too large for the log.
    settings.limits.record_changes = 12;
    settings.limits.slot_bytes = 4_000;
    let mut real = store(settings.clone(), number);
    let mut model = MemoryStore::new();
    let mut epochs: (Epoch, Epoch) = (
        real.open().expect("it opens").epoch,
        model.open().expect("it opens").epoch,
    );
    let (mut draws, mut jobs) = (Draws(seed), Jobs::default());
    for sequence in 1..=COMMITS {
        let mut changes = Vec::new();
        for _ in 0..draws.below(16) {
            jobs.change(&mut draws, &mut changes);
        }
        let commit = with_changes(epochs.0, sequence, changes.clone());
        real.commit(&commit).expect("it owns the shard");
        let commit = with_changes(epochs.1, sequence, changes);
        model.commit(&commit).expect("it owns the store");
        let keys: Vec<u64> = (0..6)
            .map(|_| draws.below(JOBS) + draws.below(2) * (3 << 20))
            .collect();
        let mut readers = (
            real.reader().expect("a reader opens"),
            model.reader().expect("a reader opens"),
        );
        match draws.below(8) {
            0 => compare_lists(&mut readers.0, &mut readers.1, &keys),
            1 => assert_eq!(loaded(&mut real), loaded(&mut model)),
            2 => real.idle().expect("rows can be written"),
            3 => {
                drop(real);
                real = store(settings.clone(), number);
                let opened = real.open().expect("it opens");
                assert_eq!(opened.sequence, sequence);
                epochs.0 = opened.epoch;
            }
            _ => compare_jobs(&mut readers.0, &mut readers.1, &keys),
        }
    }
    assert_eq!(loaded(&mut real), loaded(&mut model));
}

#[test]
fn random_lives_of_jobs_are_as_in_memory() {
    let Some(mut ground) = Ground::start("random_lives_of_jobs_are_as_in_memory") else {
        return;
    };
    for seed in 1..=4 {
        eprintln!("seed {seed}");
        run(&mut ground, seed * 0x9e37_79b9);
    }
}
