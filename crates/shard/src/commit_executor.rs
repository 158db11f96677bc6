//! Runs the store's tasks on the store thread, or small ones on the shard's thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ganger_store::Store;

use crate::clock::Clock;
use crate::core::{StoreExecutor, StoreReport, StoreTask, TaskProgress};
use crate::metrics::ShardMetrics;

/// Runs the store's tasks, and measures its commits. Clones share the store.
pub(crate) struct CommitExecutor<S> {
    shared: Arc<Mutex<Executing<S>>>,
    clock: Arc<dyn Clock>,
    metrics: Arc<ShardMetrics>,
    /// How long a commit takes in microseconds, as a moving average; 0 before the first.
    average_micros: Arc<AtomicU64>,
}

struct Executing<S> {
    executor: StoreExecutor<S>,
    /// Times at which the commits under way were begun, oldest first.
    begun: VecDeque<Duration>,
}

impl<S> Clone for CommitExecutor<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
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
            shared: Arc::new(Mutex::new(Executing {
                executor,
                begun: VecDeque::new(),
            })),
            clock,
            metrics,
            average_micros: Arc::default(),
        }
    }

    /// Returns how long a commit takes, as a moving average; zero before the first.
    pub(crate) fn average_commit(&self) -> Duration {
        Duration::from_micros(self.average_micros.load(Ordering::Relaxed))
    }

    /// Runs a task of a store that ends its commits at once; a second caller waits until the first task is done.
    ///
    /// # Panics
    /// If an earlier task panicked on any thread: the state of the store is then unknown.
    pub(crate) fn execute(&self, task: StoreTask) -> Option<StoreReport<S::Reader>> {
        self.progress(&mut self.lock(), task).report()
    }

    /// Number of commits under way.
    pub(crate) fn under_way(&self) -> usize {
        self.lock().executor.under_way()
    }

    /// Runs a task, after the commits under way if it is not a commit. Returns one report for each task that is done,
    /// `None` for a commit that was dropped.
    pub(crate) fn execute_next(&self, task: StoreTask) -> Vec<Option<StoreReport<S::Reader>>> {
        let mut reports = Vec::new();
        if !matches!(task, StoreTask::Commit(_)) {
            while self.under_way() > 0 {
                reports.extend(self.finish());
            }
        }
        match self.progress(&mut self.lock(), task) {
            TaskProgress::Done(report) => reports.push(Some(report)),
            TaskProgress::Dropped => reports.push(None),
            TaskProgress::Begun => {}
        }
        reports
    }

    /// Waits for the oldest commit under way; see [`StoreExecutor::finish`].
    pub(crate) fn finish(&self) -> Vec<Option<StoreReport<S::Reader>>> {
        let mut executing = self.lock();
        let reports = executing.executor.finish();
        for _ in &reports {
            if let Some(began) = executing.begun.pop_front() {
                self.measure(began);
            }
        }
        reports
    }

    fn lock(&self) -> MutexGuard<'_, Executing<S>> {
        let executing = self.shared.lock();
        executing.expect("a store that broke is not used again")
    }

    fn progress(&self, executing: &mut Executing<S>, task: StoreTask) -> TaskProgress<S::Reader> {
        let is_commit = matches!(task, StoreTask::Commit(_));
        let began = self.clock.monotonic();
        let progress = executing.executor.execute(task);
        match &progress {
            TaskProgress::Begun => executing.begun.push_back(began),
            TaskProgress::Done(_) if is_commit => self.measure(began),
            TaskProgress::Done(_) | TaskProgress::Dropped => {}
        }
        progress
    }

    /// Counts a commit that has just ended. Called under the lock, so no other thread changes the average in between.
    fn measure(&self, began: Duration) {
        let took = self.clock.monotonic().saturating_sub(began);
        self.metrics.commit.observe_time(took);
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let average = self.average_micros.load(Ordering::Relaxed);
        let average = average.saturating_mul(7).saturating_add(took) / 8;
        self.average_micros.store(average, Ordering::Relaxed);
    }
}
