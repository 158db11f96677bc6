//! A simulated process that owns the shard or wants to: the product's core, its store over the model, and their
//! threads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ganger_shard::clock::{Clock, TimeLine};
use ganger_shard::core::{Core, StoreExecutor, StoreReport, StoreTask};
use ganger_shard::{Hooks, PauseWatch};
use ganger_store::Store as _;
use ganger_store::memory::MemoryReader;
use ganger_store_postgres::rules::Shared;
use ganger_store_postgres::{KnownMark, ShardStore};
use ganger_types::{Commit, Now, ShardId, Timestamp};

use super::backend::ModelBackend;
use super::thread::{Answer, Ask, SimThread, ask};

/// The thread that runs the store's tasks, and the one that writes rows.
pub(crate) const STORE: usize = 0;
pub(crate) const ROWS: usize = 1;

/// The clocks of a machine at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) monotonic: Duration,
    pub(crate) wall: Timestamp,
}

impl Clock for Reading {
    fn monotonic(&self) -> Duration {
        self.monotonic
    }

    fn wall(&self) -> Timestamp {
        self.wall
    }
}

/// The shard in service.
pub(crate) struct Service {
    pub(crate) core: Core<MemoryReader, u64>,
    pub(crate) line: TimeLine,
    pub(crate) pauses: PauseWatch,
}

impl Service {
    pub(crate) fn now(&self, reading: &Reading) -> Now {
        self.line.now(reading)
    }
}

/// A process on a machine, with its threads and what it has been given.
pub(crate) struct Process {
    /// Number of the process and of no other.
    pub(crate) number: u64,
    pub(crate) threads: Vec<SimThread>,
    /// The call whose answer each thread waits for.
    pub(crate) waiting: [Option<u64>; 2],
    /// `None` until the store is open.
    pub(crate) service: Option<Service>,
    pub(crate) tasks: VecDeque<StoreTask>,
    pub(crate) is_busy: bool,
    pub(crate) is_writing_rows: bool,
    pub(crate) reports: VecDeque<StoreReport<MemoryReader>>,
    /// Time of the next wake-up.
    pub(crate) wakes_at: Option<u64>,
    /// Commits that the store was given.
    pub(crate) sent: BTreeMap<u64, Arc<Commit>>,
    /// Sequence of the last commit that was let out.
    pub(crate) released: u64,
    /// Whether the database has lost a commit that this process let out.
    pub(crate) is_rewound: bool,
    /// Planted: commits that were reported before they were confirmed.
    pub(crate) claimed: BTreeSet<u64>,
}

impl Process {
    /// Makes a process, which begins to open the store once its first thread runs.
    ///
    /// `known` is what is known of confirmed commits on its machine.
    pub(crate) fn new(number: u64, backend: ModelBackend, known: Arc<KnownMark>) -> Self {
        Self {
            number,
            threads: vec![SimThread::new(move || serve(backend, &known))],
            waiting: [None; 2],
            service: None,
            tasks: VecDeque::new(),
            is_busy: true,
            is_writing_rows: true,
            reports: VecDeque::new(),
            wakes_at: None,
            sent: BTreeMap::new(),
            released: 0,
            is_rewound: false,
            claimed: BTreeSet::new(),
        }
    }

    /// Adds the thread that writes rows.
    pub(crate) fn add_rows(&mut self, shared: Arc<Shared<ModelBackend>>) {
        self.threads.push(SimThread::new(move || write(&shared)));
    }

    /// Whether it serves the shard: an engine is loaded.
    pub(crate) fn serves(&self) -> bool {
        let core = self.service.as_ref().map(|service| &service.core);
        core.is_some_and(|core| core.stopped().is_none() && core.engine().is_some())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One may hold what another waits for.
        for thread in &mut self.threads {
            thread.abandon();
        }
    }
}

/// Opens the store and runs its tasks, as the store's thread of the product does.
fn serve(backend: ModelBackend, known: &Arc<KnownMark>) {
    let mut store = ShardStore::over(backend, &ShardId::default()).with_known(known);
    let opened = store.open();
    let shared = opened.is_ok().then(|| Arc::clone(store.shared()));
    let mut answer = ask(Ask::Opened(Box::new(opened), shared));
    let mut executor = StoreExecutor::new(store, Arc::default(), Hooks::default());
    while let Answer::Task(task) = answer {
        let report = executor.execute(*task).report();
        answer = ask(Ask::Next(report.map(Box::new)));
    }
}

/// Writes rows whenever it is told to, as the thread of the product does.
fn write(shared: &Shared<ModelBackend>) {
    let mut answer = ask(Ask::NextRows);
    while matches!(answer, Answer::WriteRows) {
        // Rows that are not written stay in the log.
        drop(shared.tend());
        answer = ask(Ask::NextRows);
    }
}
