//! The store's side of the pipeline: executes tasks one after the other.
//!
//! The store thread is a loop around [`StoreExecutor::execute`]; a simulator calls it directly.

use std::sync::Arc;

use ganger_engine::{Engine, Loader, Start};
use ganger_store::{
    CommitError, DurabilityMode, Loaded, LogState, Opened, Reader, Reserve, Store, StoreError,
};
use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::{Commit, Epoch, Now, ShardId};

use super::row_query::{RowRead, RowsRead};
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
    /// Takes the store back after an unknown outcome, if nobody else has taken it, then loads the rows.
    Reopen {
        /// Id of the shard.
        shard: ShardId,
        /// The epoch in which the outcome became unknown.
        ours: Epoch,
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
    /// Reads rows. The task needs only readers, so the host may run it in parallel with the other tasks.
    Read {
        /// The reads, each with its own number.
        reads: Vec<RowRead>,
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
    /// Answers to the queries of a [`StoreTask::Read`].
    Rows(Vec<RowsRead>),
    /// Result of a search for expired jobs.
    Found {
        /// The number of the search from [`StoreTask::Find`].
        round: u64,
        /// The finished jobs that were found.
        jobs: Result<Vec<ExpiredJob>, StoreError>,
    },
}

/// How far a task is.
pub enum TaskProgress<R> {
    /// The task is done.
    Done(StoreReport<R>),
    /// A commit that follows one that failed: it is not written.
    Dropped,
    /// The commit is under way: [`StoreExecutor::finish`] reports it.
    Begun,
}

impl<R> TaskProgress<R> {
    /// The report of a task that is done.
    pub fn report(self) -> Option<StoreReport<R>> {
        match self {
            Self::Done(report) => Some(report),
            Self::Dropped | Self::Begun => None,
        }
    }
}

/// A store with the rule that nothing is written after a failure until the engine has been loaded again.
pub struct StoreExecutor<S> {
    store: S,
    metrics: Arc<ShardMetrics>,
    hooks: Hooks,
    has_failed: bool,
    /// Number of commits that were begun and have not ended.
    under_way: usize,
    /// Flushes of the store that the metrics have counted.
    flushes_counted: u64,
    /// The log as it was shown last.
    log: LogState,
}

impl<S: Store> StoreExecutor<S> {
    /// Creates an executor over an opened store.
    pub fn new(store: S, metrics: Arc<ShardMetrics>, hooks: Hooks) -> Self {
        Self {
            store,
            metrics,
            hooks,
            has_failed: false,
            under_way: 0,
            flushes_counted: 0,
            log: LogState::default(),
        }
    }

    /// Runs a task. Only commits are begun while others are under way: every other task waits until they have ended.
    ///
    /// # Panics
    /// If another task than a commit comes while commits are under way.
    pub fn execute(&mut self, task: StoreTask) -> TaskProgress<S::Reader> {
        if let StoreTask::Commit(commit) = task {
            return self.commit(&commit);
        }
        assert_eq!(self.under_way, 0, "a task follows commits that have ended");
        TaskProgress::Done(match task {
            StoreTask::Commit(_) => unreachable!("commits were handled above"),
            StoreTask::Load { start } => StoreReport::Loaded(self.load(start, None)),
            StoreTask::Reopen {
                shard,
                ours,
                seed,
                now,
            } => StoreReport::Loaded(self.reopen(shard, ours, seed, now)),
            StoreTask::Upkeep { is_idle } => self.upkeep(is_idle),
            StoreTask::Read { reads } => StoreReport::Rows(self.read(reads)),
            StoreTask::Find {
                round,
                query,
                limit,
            } => {
                let reader = self.store.reader();
                let jobs = reader.and_then(|mut reader| reader.expired_jobs(&query, limit));
                StoreReport::Found { round, jobs }
            }
        })
    }

    /// Number of commits that were begun and have not ended.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Waits for the oldest commit under way. Returns a report for each commit that has ended, `None` for those that
    /// follow one that failed; nothing if none is under way, or a simulated one has not ended.
    ///
    /// A failure is reported once all commits under way have ended: as long as one may still arrive, the store must not
    /// be loaded.
    pub fn finish(&mut self) -> Vec<Option<StoreReport<S::Reader>>> {
        let Some((sequence, mut ended)) = self.take_finished() else {
            return Vec::new();
        };
        let mut dropped = 0;
        if let Err(error) = &mut ended {
            while let Some((_, later)) = self.take_finished() {
                dropped += 1;
                // The store has it or may have it, although one before it failed: only a new epoch can tell.
                if !matches!(later, Err(CommitError::NotApplied { .. }))
                    && matches!(error, CommitError::NotApplied { .. })
                {
                    *error = CommitError::Unknown(format!("{error}, but a later commit may be"));
                }
            }
        }
        let first = self.report_commit(sequence, ended);
        std::iter::once(Some(first))
            .chain((0..dropped).map(|_| None))
            .collect()
    }

    fn take_finished(&mut self) -> Option<(u64, Result<(), CommitError>)> {
        let ended = self.store.finished()?;
        self.under_way -= 1;
        Some(ended)
    }

    /// Returns the store, for faults and audits in tests.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> TaskProgress<S::Reader> {
        if self.has_failed {
            return TaskProgress::Dropped;
        }
        self.hooks.reach(PipelinePoint::BeforeCommit);
        match self.store.begin(commit) {
            Some(ended) => TaskProgress::Done(self.report_commit(commit.sequence, ended)),
            None => {
                self.under_way += 1;
                TaskProgress::Begun
            }
        }
    }

    fn report_commit(
        &mut self,
        sequence: u64,
        ended: Result<(), CommitError>,
    ) -> StoreReport<S::Reader> {
        self.count_flushes();
        match ended {
            Ok(()) => {
                self.hooks.reach(PipelinePoint::AfterCommit);
                let is_reserve_open = self.store.reserve().is_open;
                StoreReport::Committed {
                    sequence,
                    is_reserve_open,
                }
            }
            Err(error) => {
                self.has_failed = true;
                StoreReport::Failed { sequence, error }
            }
        }
    }

    fn read(&self, reads: Vec<RowRead>) -> Vec<RowsRead> {
        let mut reader = self.store.reader();
        let reads = reads.into_iter();
        reads
            .map(|read| match &mut reader {
                Ok(reader) => read.run(reader),
                Err(error) => read.fail(error),
            })
            .collect()
    }

    fn upkeep(&mut self, is_idle: bool) -> StoreReport<S::Reader> {
        let error = if is_idle {
            self.store.idle().err()
        } else {
            None
        };
        let reserve = self.store.keep_reserve();
        let bytes = self.store.size_bytes().unwrap_or(0);
        self.metrics.gauges.store_bytes.set(bytes);
        self.count_flushes();
        self.show_log();
        StoreReport::Upkeep {
            free_bytes: self.store.free_bytes(),
            reserve,
            error,
        }
    }

    fn count_flushes(&mut self) {
        let flushes = self.store.flushes();
        let counter = &self.metrics.counters.store_flushes_total;
        counter.add(flushes - self.flushes_counted);
        self.flushes_counted = flushes;
    }

    fn show_log(&mut self) {
        let log = self.store.log_state();
        let metrics = &self.metrics;
        metrics.gauges.store_log_bytes.set(log.bytes);
        metrics.gauges.store_commits_behind.set(log.commits_behind);
        metrics.gauges.store_bytes_behind.set(log.bytes_behind);
        let durability = log.durability.map_or(0, DurabilityMode::number);
        metrics.gauges.store_durability.set(durability);
        // The store counts from its making, as the metrics do.
        let before = std::mem::replace(&mut self.log, log);
        let counters = &metrics.counters;
        counters
            .store_log_busy_total
            .add(log.times_busy - before.times_busy);
        counters
            .store_waits_cancelled_total
            .add(log.waits_cancelled - before.waits_cancelled);
        counters
            .store_commits_blocked_total
            .add(log.times_blocked - before.times_blocked);
        counters
            .store_commits_too_large_total
            .add(log.times_too_large - before.times_too_large);
    }

    fn reopen(
        &mut self,
        shard: ShardId,
        ours: Epoch,
        seed: [u8; 32],
        now: Now,
    ) -> Result<Box<ReloadedEngine<S::Reader>>, StoreError> {
        let opened = self.store.take_back(ours)?;
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
        Loaded::Operation(record) => loader.operation(*record),
        Loaded::Audit(record) => loader.audit(*record),
        Loaded::Peer(record) => loader.peer(*record),
        Loaded::Outbox(record) => loader.outbox(*record),
        Loaded::Part(record) => loader.part(*record),
        Loaded::Dependent(dependency, dependent) => loader.dependent(dependency, *dependent),
        Loaded::External(row) => loader.external(row),
    }
}
