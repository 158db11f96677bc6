//! The store's side of the pipeline: executes tasks one after the other.
//!
//! The store thread is a loop around [`StoreExecutor::execute`]; a simulator calls it directly.

use std::sync::Arc;

use ganger_engine::{Engine, Loader, Start};
use ganger_store::{CommitError, Loaded, Opened, Reader, Reserve, Store, StoreError};
use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::{Commit, Now, ShardId};

use crate::metrics::ShardMetrics;
use crate::{Hooks, PipelinePoint};

/// A task for the store.
#[derive(Debug)]
pub enum StoreTask {
    /// Makes a turn durable.
    Commit(Arc<Commit>),
    /// Loads the rows into a new engine.
    Load {
        /// Parameters of the new engine.
        start: Start,
    },
    /// Opens the store again after an unknown outcome, then loads the rows.
    Reopen {
        /// Id of the shard.
        shard: ShardId,
        /// Unpredictable random bits for the engine.
        seed: [u8; 32],
        /// The time at which the engine starts.
        now: Now,
    },
    /// Checks free space, and does upkeep if there is time for it.
    Upkeep {
        /// Whether to do upkeep now: the store is idle, or has been busy for too many checks.
        is_idle: bool,
    },
    /// Finds finished jobs whose retention may have expired. The task needs only a reader, so the host may run it in
    /// parallel with the other tasks.
    Find {
        /// Number of this search.
        round: u64,
        /// The condition under which a finished job counts as expired.
        query: ExpiredJobsQuery,
        /// Maximum number of jobs to find.
        limit: usize,
    },
}

/// A loaded engine, with a reader of the same store.
pub struct ReloadedEngine<R> {
    /// The engine, rebuilt from its rows.
    pub engine: Engine,
    /// A reader for rows that are not in memory.
    pub reader: R,
    /// State of the store when it was opened again; `None` if it was not.
    pub opened: Option<Opened>,
}

/// A report of the store.
pub enum StoreReport<R> {
    /// A turn has become durable.
    Committed {
        /// The number of the turn.
        sequence: u64,
        /// Whether the store has used its reserve, for this commit or an earlier one.
        is_reserve_open: bool,
    },
    /// A turn is not durable, or may not be. Later submitted turns are dropped without a report.
    Failed {
        /// The number of the turn.
        sequence: u64,
        /// The reason why the commit failed.
        error: CommitError,
    },
    /// The engine was loaded, or could not be.
    Loaded(Result<Box<ReloadedEngine<R>>, StoreError>),
    /// Upkeep is done, or has failed.
    Upkeep {
        /// Free bytes on the device; `None` if unknown.
        free_bytes: Option<u64>,
        /// Bytes that are held in reserve on the store's device.
        reserve: Reserve,
        /// The error that ended the upkeep; `None` if it went well.
        error: Option<StoreError>,
    },
    /// Result of a search for expired jobs.
    Found {
        /// The number of the search from [`StoreTask::Find`].
        round: u64,
        /// The finished jobs that were found.
        jobs: Result<Vec<ExpiredJob>, StoreError>,
    },
}

/// A store with the rule that nothing is written after a failure until the engine has been loaded again.
pub struct StoreExecutor<S> {
    store: S,
    metrics: Arc<ShardMetrics>,
    hooks: Hooks,
    has_failed: bool,
    /// Flushes of the store that the metrics have counted.
    flushes_counted: u64,
}

impl<S: Store> StoreExecutor<S> {
    /// Creates an executor over an opened store.
    pub fn new(store: S, metrics: Arc<ShardMetrics>, hooks: Hooks) -> Self {
        Self {
            store,
            metrics,
            hooks,
            has_failed: false,
            flushes_counted: 0,
        }
    }

    /// Runs a task; returns `None` for a turn submitted after one that failed.
    pub fn execute(&mut self, task: StoreTask) -> Option<StoreReport<S::Reader>> {
        match task {
            StoreTask::Commit(commit) => self.commit(&commit),
            StoreTask::Load { start } => Some(StoreReport::Loaded(self.load(start, None))),
            StoreTask::Reopen { shard, seed, now } => {
                Some(StoreReport::Loaded(self.reopen(shard, seed, now)))
            }
            StoreTask::Upkeep { is_idle } => {
                let error = if is_idle {
                    self.store.idle().err()
                } else {
                    None
                };
                let reserve = self.store.keep_reserve();
                self.count_flushes();
                Some(StoreReport::Upkeep {
                    free_bytes: self.store.free_bytes(),
                    reserve,
                    error,
                })
            }
            StoreTask::Find {
                round,
                query,
                limit,
            } => {
                let reader = self.store.reader();
                let jobs = reader.and_then(|mut reader| reader.expired_jobs(&query, limit));
                Some(StoreReport::Found { round, jobs })
            }
        }
    }

    /// Returns the store, for faults and audits in tests.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> Option<StoreReport<S::Reader>> {
        if self.has_failed {
            return None;
        }
        let sequence = commit.sequence;
        self.hooks.reach(PipelinePoint::BeforeCommit);
        let committed = self.store.commit(commit);
        self.count_flushes();
        match committed {
            Ok(()) => {
                self.hooks.reach(PipelinePoint::AfterCommit);
                let is_reserve_open = self.store.reserve().is_open;
                Some(StoreReport::Committed {
                    sequence,
                    is_reserve_open,
                })
            }
            Err(error) => {
                self.has_failed = true;
                Some(StoreReport::Failed { sequence, error })
            }
        }
    }

    fn count_flushes(&mut self) {
        let flushes = self.store.flushes();
        let counter = &self.metrics.counters.store_flushes_total;
        counter.add(flushes - self.flushes_counted);
        self.flushes_counted = flushes;
    }

    fn reopen(
        &mut self,
        shard: ShardId,
        seed: [u8; 32],
        now: Now,
    ) -> Result<Box<ReloadedEngine<S::Reader>>, StoreError> {
        let opened = self.store.open()?;
        self.load(
            Start {
                shard,
                epoch: opened.epoch,
                seed,
                meta: opened.meta,
                now,
            },
            Some(opened),
        )
    }

    fn load(
        &mut self,
        start: Start,
        opened: Option<Opened>,
    ) -> Result<Box<ReloadedEngine<S::Reader>>, StoreError> {
        self.hooks.reach(PipelinePoint::BeforeLoad);
        let jobs = &self.metrics.gauges.loaded_jobs;
        jobs.set(0);
        let mut loader = Loader::new(start);
        self.store.load(&mut |row| {
            if matches!(row, Loaded::Job(_)) {
                jobs.inc();
            }
            load_row(&mut loader, row);
        })?;
        let engine = loader.finish();
        let reader = self.store.reader()?;
        self.has_failed = false;
        self.hooks.reach(PipelinePoint::AfterLoad);
        Ok(Box::new(ReloadedEngine {
            engine,
            reader,
            opened,
        }))
    }
}

/// Passes a row of the store to the engine's loader.
fn load_row(loader: &mut Loader, row: Loaded) {
    match row {
        Loaded::Namespace(record) => loader.namespace(*record),
        Loaded::Queue(record) => loader.queue(*record),
        Loaded::Schedule(record) => loader.schedule(*record),
        Loaded::Job(record) => loader.job(&record),
        Loaded::Input(row) => loader.input(&row),
        Loaded::Lease(lease) => loader.lease(*lease),
        Loaded::Unique(record) => loader.unique(*record),
        Loaded::IdempotencyRecord(record) => loader.idempotency_record(*record),
        Loaded::TagCount(namespace, tag, count) => loader.tag_count(&namespace, tag, count),
        Loaded::GroupCount(namespace, group, count) => {
            loader.group_count(&namespace, group, count);
        }
        Loaded::Tracked(namespace, id, since) => loader.tracked(&namespace, id, since),
        Loaded::Statistics(record) => loader.statistics(*record),
        Loaded::Peer(record) => loader.peer(*record),
        Loaded::Outbox(record) => loader.outbox(*record),
        Loaded::Part(record) => loader.part(*record),
        Loaded::Dependent(dependency, dependent) => loader.dependent(dependency, *dependent),
        Loaded::External(row) => loader.external(row),
    }
}
