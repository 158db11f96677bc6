//! Shared test code: a store whose commits can be held back and made to fail, and constructors for common commands.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ganger_shard::core::{Core, Ticket};
use ganger_shard::{
    CallError, Delivery, Handle, Hooks, ManualClock, PipelinePoint, Settings, Shard, StopCause,
};
pub(crate) use ganger_store::MemoryStore;
use ganger_store::graph::GraphEntry;
use ganger_store::memory::MemoryReader;
use ganger_store::{
    CommitError, Count, EndedPage, IndexedValue, Loaded, LogChunk, Opened, Page, Reader, Reserve,
    Store, StoreError, StoredJob, ValuePage, ValueQuery,
};
use ganger_types::command::{
    Complete, Enqueue, ExpiredJob, ExpiredJobsQuery, Lease, LeaseRef, NewJob, TakeFrom,
};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Command, Commit, Day, Epoch, Graph, InputRow, JobId, JobKey, Kind, Namespace, Part,
    Queue, Reply, StatisticsRecord, Timestamp, Worker,
};

/// How a commit ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The commit succeeds without a fault.
    None,
    /// The commit is not written.
    NotApplied,
    /// The commit is not written for lack of space.
    Full,
    /// The commit is written, but its outcome is unknown.
    UnknownButThere,
    /// The commit is not written, and its outcome is unknown.
    UnknownAndLost,
    /// Another process owns the store.
    Fenced,
    /// The store panics, and its thread ends.
    Panics,
}

#[derive(Default)]
struct GateState {
    is_held: bool,
    arrived: u64,
    script: VecDeque<Fault>,
    free: Option<u64>,
    reserve: Reserve,
    open_fails: bool,
    reads_fail: bool,
    payload_reads: u64,
    damaged: BTreeSet<JobKey>,
}

/// Controls a store from a test.
#[derive(Clone, Default)]
pub(crate) struct StoreControl {
    shared: Arc<(Mutex<GateState>, Condvar)>,
}

impl StoreControl {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.shared.0.lock().expect("no test panics with it")
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.lock());
        self.shared.1.notify_all();
    }

    /// Holds arriving commits back.
    pub(crate) fn hold(&self) {
        self.change(|state| state.is_held = true);
    }

    /// Releases the held commits.
    pub(crate) fn release(&self) {
        self.change(|state| state.is_held = false);
    }

    /// Sets how the next commits end.
    pub(crate) fn script(&self, faults: &[Fault]) {
        self.change(|state| state.script.extend(faults));
    }

    /// Forgets the faults that were scripted and not used.
    pub(crate) fn clear_script(&self) {
        self.change(|state| state.script.clear());
    }

    /// Sets the free bytes on the device.
    pub(crate) fn set_free(&self, free: u64) {
        self.change(|state| state.free = Some(free));
    }

    /// Sets the store's reserve.
    pub(crate) fn set_reserve(&self, reserve: Reserve) {
        self.change(|state| state.reserve = reserve);
    }

    /// Sets whether reads of payloads fail although the payloads are intact.
    pub(crate) fn fail_reads(&self, fail: bool) {
        self.change(|state| state.reads_fail = fail);
    }

    /// Returns how often a payload was read from the store.
    pub(crate) fn payload_reads(&self) -> u64 {
        self.lock().payload_reads
    }

    /// Makes every further opening of the store fail.
    pub(crate) fn fail_open(&self) {
        self.change(|state| state.open_fails = true);
    }

    /// Makes the payload of this job unreadable.
    pub(crate) fn damage(&self, key: JobKey) {
        self.change(|state| {
            state.damaged.insert(key);
        });
    }

    /// Returns the number of commits that have arrived so far.
    pub(crate) fn arrived(&self) -> u64 {
        self.lock().arrived
    }

    /// Waits until this number of commits has arrived.
    pub(crate) fn wait_arrived(&self, count: u64) {
        tokio::task::block_in_place(|| {
            let state = self.lock();
            let enough = |state: &mut GateState| state.arrived < count;
            drop(
                self.shared
                    .1
                    .wait_while(state, enough)
                    .expect("no test panics with it"),
            );
        });
    }

    fn arrive(&self) -> Fault {
        let mut state = self.lock();
        state.arrived += 1;
        self.shared.1.notify_all();
        let held = |state: &mut GateState| state.is_held;
        let mut state = self
            .shared
            .1
            .wait_while(state, held)
            .expect("no test panics with it");
        state.script.pop_front().unwrap_or(Fault::None)
    }
}

/// A memory store whose commits a test holds and fails.
pub(crate) struct GatedStore {
    inner: MemoryStore,
    control: StoreControl,
}

impl GatedStore {
    pub(crate) fn new(inner: MemoryStore, control: &StoreControl) -> Self {
        Self {
            inner,
            control: control.clone(),
        }
    }
}

impl Store for GatedStore {
    type Reader = GatedReader;

    fn open(&mut self) -> Result<Opened, StoreError> {
        if self.control.lock().open_fails {
            return Err(StoreError::Io {
                path: "memory".into(),
                doing: "opened",
                reason: "as the test wants".into(),
            });
        }
        self.inner.open()
    }

    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        self.inner.load(each)
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        match self.control.arrive() {
            Fault::None => self.inner.commit(commit),
            Fault::NotApplied => Err(CommitError::NotApplied {
                reason: "as the test wants".into(),
                is_full: false,
            }),
            Fault::Full => Err(CommitError::NotApplied {
                reason: "no space".into(),
                is_full: true,
            }),
            Fault::UnknownButThere => {
                self.inner.commit(commit)?;
                Err(CommitError::Unknown("the answer was lost".into()))
            }
            Fault::UnknownAndLost => Err(CommitError::Unknown("the write was lost".into())),
            Fault::Fenced => Err(CommitError::Fenced {
                ours: commit.epoch,
                theirs: Epoch(commit.epoch.0 + 1),
            }),
            Fault::Panics => panic!("the store breaks, as the test wants"),
        }
    }

    fn reader(&self) -> Result<GatedReader, StoreError> {
        Ok(GatedReader {
            inner: self.inner.reader()?,
            control: self.control.clone(),
        })
    }

    fn free_bytes(&self) -> Option<u64> {
        self.control.lock().free
    }

    fn is_remote(&self) -> bool {
        crate::IS_REMOTE
    }

    fn reserve(&self) -> Reserve {
        self.control.lock().reserve
    }
}

/// A reader of the memory store that reports damage where the test wants it.
pub(crate) struct GatedReader {
    inner: MemoryReader,
    control: StoreControl,
}

impl Reader for GatedReader {
    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, StoreError> {
        self.inner.job(key)
    }

    fn find(&mut self, namespace: &Namespace, id: &JobId) -> Result<Option<StoredJob>, StoreError> {
        self.inner.find(namespace, id)
    }

    fn count(&mut self, query: &JobQuery) -> Result<Count, StoreError> {
        self.inner.count(query)
    }

    fn list_by_end(
        &mut self,
        query: &JobQuery,
        after: Option<u64>,
    ) -> Result<EndedPage, StoreError> {
        self.inner.list_by_end(query, after)
    }

    fn values(
        &mut self,
        namespace: &Namespace,
        of: &IndexedValue,
        query: &ValueQuery,
    ) -> Result<ValuePage, StoreError> {
        self.inner.values(namespace, of, query)
    }

    fn log_bytes(&mut self, key: JobKey, attempt: u32) -> Result<u64, StoreError> {
        self.inner.log_bytes(key, attempt)
    }

    fn list(&mut self, query: &JobQuery) -> Result<Page, StoreError> {
        self.inner.list(query)
    }

    fn payload(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        self.control.change(|state| state.payload_reads += 1);
        if self.control.lock().reads_fail {
            return Err(StoreError::Io {
                path: "memory".into(),
                doing: "read",
                reason: "as the test wants".into(),
            });
        }
        if self.control.lock().damaged.contains(&key) {
            let what = format!("payload of job {key}: checksum does not match");
            return Err(StoreError::Damaged {
                path: "memory".into(),
                what,
            });
        }
        self.inner.payload(key)
    }

    fn inputs(
        &mut self,
        key: JobKey,
        from: u32,
        limit: usize,
    ) -> Result<Vec<InputRow>, StoreError> {
        self.inner.inputs(key, from, limit)
    }

    fn dependents(&mut self, key: JobKey, limit: usize) -> Result<Vec<JobKey>, StoreError> {
        self.inner.dependents(key, limit)
    }

    fn result(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        self.inner.result(key)
    }

    fn log(
        &mut self,
        key: JobKey,
        after: (u32, u64),
        bytes: usize,
    ) -> Result<Vec<LogChunk>, StoreError> {
        self.inner.log(key, after, bytes)
    }

    fn expired_jobs(
        &mut self,
        query: &ExpiredJobsQuery,
        limit: usize,
    ) -> Result<Vec<ExpiredJob>, StoreError> {
        self.inner.expired_jobs(query, limit)
    }

    fn statistics(
        &mut self,
        namespace: &Namespace,
        queue: &Queue,
        day: Day,
    ) -> Result<Option<StatisticsRecord>, StoreError> {
        self.inner.statistics(namespace, queue, day)
    }

    fn part(&mut self, namespace: &Namespace, graph: &Graph) -> Result<Option<Part>, StoreError> {
        self.inner.part(namespace, graph)
    }

    fn graphs(
        &mut self,
        namespace: &Namespace,
        before: Option<&Graph>,
        limit: usize,
    ) -> Result<Vec<GraphEntry>, StoreError> {
        self.inner.graphs(namespace, before, limit)
    }
}

/// A running shard with its clock and its store's controls.
pub(crate) struct TestShard {
    pub(crate) store: MemoryStore,
    pub(crate) control: StoreControl,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) handle: Handle,
    pub(crate) stopped: tokio::sync::watch::Receiver<Option<StopCause>>,
}

/// Settings for tests: turns do not wait for more commands, since a stopped clock would never end the wait.
pub(crate) fn settings() -> Settings {
    Settings {
        group_wait: Duration::ZERO,
        ..Settings::default()
    }
}

impl TestShard {
    pub(crate) async fn start() -> Self {
        Self::start_with(settings(), MemoryStore::default()).await
    }

    pub(crate) async fn start_with(settings: Settings, store: MemoryStore) -> Self {
        Self::start_hooked(settings, store, None).await
    }

    pub(crate) async fn start_hooked(
        settings: Settings,
        store: MemoryStore,
        at_point: Option<Arc<dyn Fn(PipelinePoint) + Send + Sync>>,
    ) -> Self {
        let control = StoreControl::default();
        let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
        let (told, stopped) = tokio::sync::watch::channel(None);
        let on_stopped = Arc::new(move |cause: &StopCause| {
            told.send_replace(Some(cause.clone()));
        });
        let hooks = Hooks {
            on_stopped: Some(on_stopped),
            at_point,
        };
        let gate = GatedStore::new(store.clone(), &control);
        let handle =
            Shard::start(gate, settings, clock.clone(), hooks).expect("a memory store opens");
        handle.ready().await;
        Self {
            store,
            control,
            clock,
            handle,
            stopped,
        }
    }

    /// Stops the shard and starts another one over the same store.
    pub(crate) async fn restart(self) -> Self {
        self.handle.stop().await;
        Self::start_with(settings(), self.store).await
    }
}

pub(crate) fn queue(name: &'static str) -> Queue {
    Queue::from_static(name)
}

pub(crate) fn new_job(queue: &'static str, payload: &'static str) -> NewJob {
    NewJob {
        queue: Queue::from_static(queue),
        kind: Kind::from_static("work"),
        payload: Bytes::from_static(payload.as_bytes()),
        ..NewJob::default()
    }
}

pub(crate) fn enqueue(jobs: Vec<NewJob>) -> Command {
    Command::Enqueue(Box::new(Enqueue {
        jobs,
        ..Enqueue::default()
    }))
}

pub(crate) fn lease(queues: &[&'static str], jobs_max: u32) -> Lease {
    let take = |name: &&'static str| TakeFrom {
        queue: Queue::from_static(name),
        weight: 1,
    };
    Lease {
        queues: queues.iter().map(take).collect(),
        worker: Some(Worker::from_static("worker")),
        jobs_max,
        ..Lease::default()
    }
}

pub(crate) fn held(delivery: &Delivery) -> LeaseRef {
    let grant = &delivery.grant;
    LeaseRef {
        namespace: grant.namespace.clone(),
        job: grant.job.clone(),
        token: grant.token,
    }
}

pub(crate) fn complete(delivery: &Delivery, result: Option<&'static str>) -> Command {
    Command::Complete(Box::new(Complete {
        held: held(delivery),
        result: result.map(|text| Bytes::from_static(text.as_bytes())),
        next: None,
    }))
}

/// Lets a core read rows beside it if the store of the tests is on another machine.
pub(crate) fn as_stored<R: Reader, T: Ticket>(core: Core<R, T>) -> Core<R, T> {
    if crate::IS_REMOTE {
        core.reading_beside()
    } else {
        core
    }
}

/// Returns the ids in the reply to a submission.
pub(crate) fn ids(reply: Result<Reply, CallError>) -> Vec<JobId> {
    match reply.expect("accepted") {
        Reply::Enqueued { jobs, .. } => jobs.into_iter().map(|job| job.id).collect(),
        other => panic!("not the answer to a submission: {other:?}"),
    }
}

/// Polls a future once; `None` if it is not ready.
pub(crate) fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
