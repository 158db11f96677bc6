//! Runs the store's tasks on the store thread, or small ones on the shard's thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ganger_store::Store;

use crate::clock::Clock;
use crate::core::{StoreExecutor, StoreReport, StoreTask};
use crate::metrics::ShardMetrics;

/// Runs the store's tasks, one at a time, and measures its commits. Clones share the store.
pub(crate) struct CommitExecutor<S> {
    executor: Arc<Mutex<StoreExecutor<S>>>,
    clock: Arc<dyn Clock>,
    metrics: Arc<ShardMetrics>,
    /// How long a commit takes in microseconds, as a moving average; 0 before the first.
    average_micros: Arc<AtomicU64>,
}

impl<S> Clone for CommitExecutor<S> {
    fn clone(&self) -> Self {
        Self {
            executor: Arc::clone(&self.executor),
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&self.metrics),
            average_micros: Arc::clone(&self.average_micros),
        }
    }
}

impl<S: Store> CommitExecutor<S> {
    pub(crate) fn new(
        executor: StoreExecutor<S>,
        clock: Arc<dyn Clock>,
        metrics: Arc<ShardMetrics>,
    ) -> Self {
        Self {
            executor: Arc::new(Mutex::new(executor)),
            clock,
            metrics,
            average_micros: Arc::default(),
        }
    }

    /// Returns how long a commit takes, as a moving average; zero before the first.
    pub(crate) fn average_commit(&self) -> Duration {
        Duration::from_micros(self.average_micros.load(Ordering::Relaxed))
    }

    /// Runs a task; a second caller waits until the first task is done.
    ///
    /// # Panics
    /// If an earlier task panicked on any thread: the state of the store is then unknown.
    pub(crate) fn execute(&self, task: StoreTask) -> Option<StoreReport<S::Reader>> {
        let is_commit = matches!(task, StoreTask::Commit(_));
        let mut executor = self
            .executor
            .lock()
            .expect("a store that broke is not used again");
        let began = self.clock.monotonic();
        let report = executor.execute(task);
        if is_commit {
            let took = self.clock.monotonic().saturating_sub(began);
            self.metrics.commit.observe_time(took);
            // Under the lock, so no other thread changes it in between.
            let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            let average = self.average_micros.load(Ordering::Relaxed);
            let average = average.saturating_mul(7).saturating_add(took) / 8;
            self.average_micros.store(average, Ordering::Relaxed);
        }
        report
    }
}
