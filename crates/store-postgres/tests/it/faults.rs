//! The suite while connections are cut before, during and after statements: whatever happens, a shard that takes its
//! store back and tries again sees what it would have seen without.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ganger_store::graph::GraphEntry;
use ganger_store::suite::{StoreFixture, cases};
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

/// A store that is taken back after every unknown outcome. It counts its openings as a store without faults would.
struct Persistent {
    inner: PostgresStore,
    /// Epochs as the suite sees them, of this and all other stores of the shard.
    epochs: Arc<Mutex<u64>>,
    /// Epoch as the suite sees it, and the one of the shard.
    shown: Epoch,
    epoch: Epoch,
}

impl Persistent {
    /// Opens the store until it succeeds.
    fn reopen(&mut self) -> Result<Opened, StoreError> {
        again(|| self.inner.open())
    }
}

impl Store for Persistent {
    type Reader = PersistentReader;

    fn open(&mut self) -> Result<Opened, StoreError> {
        let opened = self.reopen()?;
        let mut epochs = self.epochs.lock().expect("nobody panics");
        *epochs += 1;
        (self.shown, self.epoch) = (Epoch(*epochs), opened.epoch);
        Ok(Opened {
            epoch: self.shown,
            ..opened
        })
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
        if commit.epoch != self.shown {
            return Err(CommitError::Fenced {
                ours: commit.epoch,
                theirs: self.shown,
            });
        }
        loop {
            let real = Arc::new(Commit {
                epoch: self.epoch,
                ..(**commit).clone()
            });
            match self.inner.commit(&real) {
                Err(CommitError::Unknown(_)) => {
                    let opened = self.reopen().expect("it is ours");
                    self.epoch = opened.epoch;
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

struct Faulty(Fixture);

impl StoreFixture for Faulty {
    type Store = Persistent;

    fn fresh(&mut self) -> Persistent {
        Persistent {
            inner: self.0.fresh(),
            epochs: Arc::default(),
            shown: Epoch(0),
            epoch: Epoch(0),
        }
    }

    fn again(&mut self, store: Persistent) -> Persistent {
        Persistent {
            inner: self.0.again(store.inner),
            ..store
        }
    }
}

fn run_with_cuts(test: &str, first: usize) {
    let Some(ground) = Ground::start(test) else {
        return;
    };
    let proxy = Proxy::start(ground.instance.port(), plan(first));
    let settings = Settings::from_url(&Ground::url(proxy.port())).expect("it is whole");
    let mut faulty = Faulty(Fixture::new(ground, settings));
    for case in cases::<Faulty>() {
        eprintln!("{}", case.name);
        (case.run)(&mut faulty);
    }
    assert!(proxy.cuts() > 50, "{} cuts", proxy.cuts());
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
                opened = again(|| store.open()).expect("it is ours");
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
