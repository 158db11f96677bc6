//! The suite while connections are cut before, during and after statements: whatever happens, a shard that takes its
//! store back and tries again sees what it would have seen without.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ganger_store::graph::GraphEntry;
use ganger_store::suite::{SharedStoreFixture, StoreFixture, cases, shared_cases};
use ganger_store::{
    CommitError, Count, EndedPage, IndexedValue, Loaded, LogChunk, Opened, Page, Reader, Store,
    StoreError, StoredJob, ValuePage, ValueQuery,
};
use ganger_store_postgres::{PostgresReader, PostgresStore, Settings};
use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Commit, Day, Epoch, Graph, InputRow, JobId, JobKey, Namespace, Part, Queue,
    StatisticsRecord,
};

use crate::proxy::{Cut, Proxy};
use crate::suite::Fixture;
use crate::support::{Ground, commit, store};

/// Attempts of an operation, each of which may meet a cut.
const ATTEMPTS: u32 = 40;
/// How often the cases with two writers run.
const SHARED_ROUNDS: u32 = 6;

/// Cuts the 7th statement after the last cut, and then the 29th: the longest transactions need more than 7.
fn plan(first: usize) -> impl Fn(u64) -> Option<Cut> + Send + Sync {
    let state = Mutex::new((0_u64, first));
    move |_| {
        let mut state = state.lock().expect("nobody panics");
        let (since, cuts) = &mut *state;
        *since += 1;
        let gap = if *cuts % 2 == 0 { 7 } else { 29 };
        if *since < gap {
            return None;
        }
        *since = 0;
        *cuts += 1;
        Some([Cut::Before, Cut::During, Cut::After][*cuts % 3])
    }
}

fn again<T>(mut run: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut attempt = 1;
    loop {
        match run() {
            Err(StoreError::Io { .. } | StoreError::Unreachable { .. }) if attempt < ATTEMPTS => {
                attempt += 1;
            }
            done => return done,
        }
    }
}

/// The epochs of a shard, as the suite sees them and as they are: a claim whose answer was lost raises the epoch as well.
#[derive(Default)]
struct Epochs {
    /// The last real epoch of each one that the suite sees, from 1 on.
    last: Vec<u64>,
}

impl Epochs {
    /// Notes a real epoch as the next one that the suite sees.
    fn add(&mut self, real: Epoch) -> Epoch {
        self.last.push(real.0);
        Epoch(u64::try_from(self.last.len()).expect("small"))
    }

    fn real(&self, shown: Epoch) -> Epoch {
        Epoch(self.last[Self::index(shown)])
    }

    /// Notes that an epoch that the suite sees goes on as this real one.
    fn go_on(&mut self, shown: Epoch, real: Epoch) {
        assert_eq!(
            Self::index(shown) + 1,
            self.last.len(),
            "it is the last one"
        );
        self.last[Self::index(shown)] = real.0;
    }

    fn shown(&self, real: Epoch) -> Epoch {
        let before = self.last.partition_point(|last| *last < real.0);
        assert!(before < self.last.len(), "{real:?} is nobody's");
        Epoch(u64::try_from(before + 1).expect("small"))
    }

    fn index(shown: Epoch) -> usize {
        usize::try_from(shown.0 - 1).expect("small")
    }
}

/// A store that is taken back after every unknown outcome, unless somebody else has taken it. It counts its openings as
/// a store without faults would.
struct Persistent {
    inner: PostgresStore,
    /// Of this store and all others of the shard.
    epochs: Arc<Mutex<Epochs>>,
}

impl Persistent {
    fn over(inner: PostgresStore, epochs: &Arc<Mutex<Epochs>>) -> Self {
        Self {
            inner,
            epochs: Arc::clone(epochs),
        }
    }

    fn epochs(&self) -> MutexGuard<'_, Epochs> {
        self.epochs.lock().expect("nobody panics")
    }

    fn real(&self, shown: Epoch) -> Epoch {
        self.epochs().real(shown)
    }

    /// Takes the store until the outcome is known.
    fn take(
        &mut self,
        take: impl Fn(&mut PostgresStore) -> Result<Opened, StoreError>,
    ) -> Result<Opened, StoreError> {
        let taken = again(|| take(&mut self.inner));
        let epochs = self.epochs();
        taken.map_err(|error| match error {
            StoreError::Fenced { path, ours, theirs } => StoreError::Fenced {
                path,
                ours: epochs.shown(ours),
                theirs: epochs.shown(theirs),
            },
            other => other,
        })
    }

    /// Notes an opening that the suite sees.
    fn show(&self, opened: Opened) -> Opened {
        let epoch = self.epochs().add(opened.epoch);
        Opened { epoch, ..opened }
    }
}

impl Store for Persistent {
    type Reader = PersistentReader;

    fn open(&mut self) -> Result<Opened, StoreError> {
        let opened = self.take(Store::open)?;
        Ok(self.show(opened))
    }

    fn take_back(&mut self, ours: Epoch) -> Result<Opened, StoreError> {
        let ours = self.real(ours);
        let opened = self.take(|store| store.take_back(ours))?;
        Ok(self.show(opened))
    }

    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        let rows = again(|| {
            let mut rows = Vec::new();
            self.inner.load(&mut |row| rows.push(row))?;
            Ok(rows)
        })?;
        rows.into_iter().for_each(each);
        Ok(())
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        loop {
            let ours = self.real(commit.epoch);
            let real = Arc::new(Commit {
                epoch: ours,
                ..(**commit).clone()
            });
            match self.inner.commit(&real) {
                Err(CommitError::Unknown(_)) => {
                    let opened = match self.take(|store| store.take_back(ours)) {
                        Ok(opened) => opened,
                        Err(StoreError::Fenced { ours, theirs, .. }) => {
                            return Err(CommitError::Fenced { ours, theirs });
                        }
                        Err(error) => panic!("{error}"),
                    };
                    self.epochs().go_on(commit.epoch, opened.epoch);
                    if opened.sequence == commit.sequence {
                        return Ok(());
                    }
                    assert_eq!(
                        opened.sequence + 1,
                        commit.sequence,
                        "an acknowledged commit is lost"
                    );
                }
                // Nothing was sent.
                Err(CommitError::NotApplied { reason, .. })
                    if !reason.contains("does not follow") => {}
                Err(CommitError::Fenced { theirs, .. }) => {
                    return Err(CommitError::Fenced {
                        ours: commit.epoch,
                        theirs: self.epochs().shown(theirs),
                    });
                }
                done => return done,
            }
        }
    }

    fn reader(&self) -> Result<PersistentReader, StoreError> {
        self.inner.reader().map(PersistentReader)
    }
}

struct PersistentReader(PostgresReader);

impl Reader for PersistentReader {
    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, StoreError> {
        again(|| self.0.job(key))
    }

    fn find(&mut self, namespace: &Namespace, id: &JobId) -> Result<Option<StoredJob>, StoreError> {
        again(|| self.0.find(namespace, id))
    }

    fn list(&mut self, query: &JobQuery) -> Result<Page, StoreError> {
        again(|| self.0.list(query))
    }

    fn count(&mut self, query: &JobQuery) -> Result<Count, StoreError> {
        again(|| self.0.count(query))
    }

    fn list_by_end(
        &mut self,
        query: &JobQuery,
        after: Option<u64>,
    ) -> Result<EndedPage, StoreError> {
        again(|| self.0.list_by_end(query, after))
    }

    fn values(
        &mut self,
        namespace: &Namespace,
        of: &IndexedValue,
        query: &ValueQuery,
    ) -> Result<ValuePage, StoreError> {
        again(|| self.0.values(namespace, of, query))
    }

    fn log_bytes(&mut self, key: JobKey, attempt: u32) -> Result<u64, StoreError> {
        again(|| self.0.log_bytes(key, attempt))
    }

    fn payload(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        again(|| self.0.payload(key))
    }

    fn inputs(
        &mut self,
        key: JobKey,
        from: u32,
        limit: usize,
    ) -> Result<Vec<InputRow>, StoreError> {
        again(|| self.0.inputs(key, from, limit))
    }

    fn dependents(&mut self, key: JobKey, limit: usize) -> Result<Vec<JobKey>, StoreError> {
        again(|| self.0.dependents(key, limit))
    }

    fn result(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        again(|| self.0.result(key))
    }

    fn log(
        &mut self,
        key: JobKey,
        after: (u32, u64),
        bytes: usize,
    ) -> Result<Vec<LogChunk>, StoreError> {
        again(|| self.0.log(key, after, bytes))
    }

    fn expired_jobs(
        &mut self,
        query: &ExpiredJobsQuery,
        limit: usize,
    ) -> Result<Vec<ExpiredJob>, StoreError> {
        again(|| self.0.expired_jobs(query, limit))
    }

    fn statistics(
        &mut self,
        namespace: &Namespace,
        queue: &Queue,
        day: Day,
    ) -> Result<Option<StatisticsRecord>, StoreError> {
        again(|| self.0.statistics(namespace, queue, day))
    }

    fn part(&mut self, namespace: &Namespace, graph: &Graph) -> Result<Option<Part>, StoreError> {
        again(|| self.0.part(namespace, graph))
    }

    fn graphs(
        &mut self,
        namespace: &Namespace,
        before: Option<&Graph>,
        limit: usize,
    ) -> Result<Vec<GraphEntry>, StoreError> {
        again(|| self.0.graphs(namespace, before, limit))
    }
}

struct Faulty {
    fixture: Fixture,
    /// By way of the proxy.
    settings: Settings,
}

impl StoreFixture for Faulty {
    type Store = Persistent;

    fn fresh(&mut self) -> Persistent {
        Persistent::over(self.fixture.fresh(), &Arc::default())
    }

    fn again(&mut self, store: Persistent) -> Persistent {
        Persistent {
            inner: self.fixture.again(store.inner),
            ..store
        }
    }
}

impl SharedStoreFixture for Faulty {
    fn another(&mut self, store: &Persistent) -> Persistent {
        let another = self.fixture.another_with(self.settings.clone());
        Persistent::over(another, &store.epochs)
    }
}

fn run_with_cuts(test: &str, first: usize) {
    let Some(ground) = Ground::start(test) else {
        return;
    };
    let proxy = Proxy::start(ground.instance.port(), plan(first));
    let settings = Settings::from_url(&Ground::url(proxy.port())).expect("it is whole");
    let mut faulty = Faulty {
        fixture: Fixture::new(ground, settings.clone()),
        settings,
    };
    for case in cases::<Faulty>() {
        eprintln!("{}", case.name);
        (case.run)(&mut faulty);
    }
    assert!(proxy.cuts() > 50, "{} cuts", proxy.cuts());
    // They need few statements: each round meets the cuts elsewhere.
    let before = proxy.cuts();
    for round in 0..SHARED_ROUNDS {
        for case in shared_cases::<Faulty>() {
            eprintln!("{}, round {round}", case.name);
            (case.run)(&mut faulty);
        }
    }
    let cuts = proxy.cuts() - before;
    assert!(cuts > 50, "{cuts} cuts");
}

#[test]
fn connections_that_are_cut_pass_the_suite() {
    run_with_cuts("connections_that_are_cut_pass_the_suite", 0);
}

#[test]
fn connections_that_are_cut_elsewhere_pass_the_suite() {
    run_with_cuts("connections_that_are_cut_elsewhere_pass_the_suite", 2);
}

/// `rel D6`: a commit whose outcome is unknown is there after the store was taken back, or never comes.
#[test]
fn an_unknown_outcome_is_settled_by_taking_the_store_back() {
    let Some(mut ground) = Ground::start("an_unknown_outcome_is_settled") else {
        return;
    };
    let number = ground.add_shard();
    // Every 31st statement is cut, in each way.
    let proxy = Proxy::start(ground.instance.port(), |number| {
        let cut = [Cut::Before, Cut::During, Cut::After];
        (number % 31 == 30).then(|| cut[usize::try_from(number / 31 % 3).expect("small")])
    });
    let mut settings = Settings::from_url(&Ground::url(proxy.port())).expect("it is whole");
    settings.limits.has_row_thread = false;
    let mut store = store(settings, number);
    let mut opened = again(|| store.open()).expect("it opens");
    let (mut there, mut absent) = (0, 0);
    let mut outcomes = HashMap::new();
    let mut sequence = 1;
    while there + absent < 60 {
        match store.commit(&commit(opened.epoch, sequence)) {
            Ok(()) => sequence += 1,
            Err(CommitError::NotApplied { .. }) => {}
            Err(CommitError::Unknown(_)) => {
                let ours = opened.epoch;
                opened = again(|| store.take_back(ours)).expect("it is ours");
                let is_there = opened.sequence == sequence;
                assert!(is_there || opened.sequence + 1 == sequence);
                outcomes.insert(sequence, is_there);
                there += u32::from(is_there);
                absent += u32::from(!is_there);
                sequence += u64::from(is_there);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(there > 0 && absent > 0, "{there} there, {absent} absent");
    drop(store);
    let last = ground.store(number).open().expect("it opens").sequence;
    assert_eq!(
        last + 1,
        sequence,
        "none was lost, and none came later: {outcomes:?}"
    );
}
