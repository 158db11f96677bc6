//! The store's side of the pipeline: carries orders out one after the other.
//!
//! The store thread is a loop around [`StoreExecutor::execute`]; a simulator calls it when it pleases.

use std::sync::Arc;

use ganger_engine::{Engine, Loader, Start};
use ganger_store::{CommitError, Loaded, Opened, Reader, Reserve, Store, StoreError};
use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::{Commit, Now, ShardId};

use crate::metrics::ShardMetrics;
use crate::{Hooks, PipelinePoint};

/// What the store is to do.
#[derive(Debug)]
pub enum StoreTask {
    /// Make a turn durable.
    Commit(Arc<Commit>),
    /// Read the rows back into a new engine.
    Load {
        /// What the engine starts with.
        start: Start,
    },
    /// Open the store again after an unknown outcome, then read the rows back.
    Reopen {
        /// Which shard it is.
        shard: ShardId,
        /// Unguessable bits for the engine.
        seed: [u8; 32],
        /// The time at which the engine starts.
        now: Now,
    },
    /// Look at the free space; do upkeep if there is time for it.
    Upkeep {
        /// Whether to do upkeep now: the store is idle, or it has not been idle for too many looks.
        is_idle: bool,
    },
    /// Look for finished jobs whose retention may have passed. It needs a reader only: the host may
    /// carry it out beside the other orders.
    Find {
        /// Which look this is.
        round: u64,
        /// The rule by which a finished job counts as expired.
        query: ExpiredJobsQuery,
        /// At most so many.
        limit: usize,
    },
}

/// An engine read back, with a reader of the same store.
pub struct ReloadedEngine<R> {
    /// The engine, rebuilt from its rows.
    pub engine: Engine,
    /// For what is not in memory.
    pub reader: R,
    /// Where the store stood when it was opened again; `None` if it was not.
    pub opened: Option<Opened>,
}

/// What the store says.
pub enum StoreReport<R> {
    /// A turn is durable.
    Committed {
        /// The number of the turn.
        sequence: u64,
        /// Whether the store has drawn on its reserve, for this commit or an earlier one.
        is_reserve_open: bool,
    },
    /// A turn is not durable, or may not be. Turns given after it are dropped without a report.
    Failed {
        /// The number of the turn.
        sequence: u64,
        /// The reason why the commit failed.
        error: CommitError,
    },
    /// The rows were read back.
    Loaded(Result<Box<ReloadedEngine<R>>, StoreError>),
    /// Upkeep was done, or failed.
    Upkeep {
        /// Free bytes on the device, if that means anything.
        free_bytes: Option<u64>,
        /// What the store keeps in reserve.
        reserve: Reserve,
        /// The error that ended the upkeep; `None` if it went well.
        error: Option<StoreError>,
    },
    /// What a look for finished jobs found.
    Found {
        /// The number of the look that [`StoreTask::Find`] named.
        round: u64,
        /// The finished jobs that were found.
        jobs: Result<Vec<ExpiredJob>, StoreError>,
    },
}

/// A store and the rule that nothing is written after a failure until the engine was read back.
pub struct StoreExecutor<S> {
    store: S,
    metrics: Arc<ShardMetrics>,
    hooks: Hooks,
    has_failed: bool,
}

impl<S: Store> StoreExecutor<S> {
    /// Over an opened store.
    pub fn new(store: S, metrics: Arc<ShardMetrics>, hooks: Hooks) -> Self {
        Self {
            store,
            metrics,
            hooks,
            has_failed: false,
        }
    }

    /// Runs a task. `None` for a turn given after one that failed.
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

    /// The store, for faults and audits in tests.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> Option<StoreReport<S::Reader>> {
        if self.has_failed {
            return None;
        }
        let sequence = commit.sequence;
        self.hooks.reach(PipelinePoint::BeforeCommit);
        match self.store.commit(commit) {
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

/// Hands a row of the store to the engine.
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
        Loaded::Key(record) => loader.key(*record),
        Loaded::Element(record) => loader.element(*record),
        Loaded::Qless(namespace, row) => loader.qless(namespace, *row),
    }
}
