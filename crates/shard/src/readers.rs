//! Threads that read committed state, so that neither the shard nor the writer waits for reads.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ganger_store::{Reader, StoreError};
use tokio::sync::oneshot;

use crate::CallError;
use crate::metrics::{ShardMetrics, count};
use crate::ownership::OwnershipCheck;

/// A read for a reader thread.
pub(crate) type ReadTask = Box<dyn FnOnce(&mut dyn Reader) + Send>;

/// A bounded queue of reads, and the threads that run them.
pub(crate) struct ReadPool {
    check: OwnershipCheck,
    tasks_max: usize,
    metrics: Arc<ShardMetrics>,
    tasks: Mutex<TaskQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct TaskQueue {
    waiting: VecDeque<ReadTask>,
    is_closed: bool,
}

impl ReadPool {
    /// Starts a pool with one thread for each reader.
    pub(crate) fn start<R: Reader>(
        check: OwnershipCheck,
        tasks_max: usize,
        metrics: Arc<ShardMetrics>,
        readers: Vec<R>,
    ) -> std::io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let pool = Arc::new(Self {
            check,
            tasks_max,
            metrics,
            tasks: Mutex::default(),
            changed: Condvar::new(),
        });
        let mut threads = Vec::with_capacity(readers.len());
        for mut reader in readers {
            let pool = Arc::clone(&pool);
            let name = format!("read-{}", pool.check.shard);
            let thread = std::thread::Builder::new().name(name);
            threads.push(thread.spawn(move || pool.work(&mut reader))?);
        }
        Ok((pool, threads))
    }

    /// Makes a pool that refuses every read.
    pub(crate) fn closed(check: OwnershipCheck, metrics: Arc<ShardMetrics>) -> Arc<Self> {
        let tasks = TaskQueue {
            is_closed: true,
            ..TaskQueue::default()
        };
        Arc::new(Self {
            check,
            tasks_max: 0,
            metrics,
            tasks: Mutex::new(tasks),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, TaskQueue> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, reader: &mut dyn Reader) {
        while let Some(task) = self.next() {
            task(reader);
        }
    }

    fn next(&self) -> Option<ReadTask> {
        let mut tasks = self.lock();
        loop {
            if let Some(task) = tasks.waiting.pop_front() {
                self.metrics
                    .gauges
                    .waiting_reads
                    .set(count(tasks.waiting.len()));
                return Some(task);
            }
            if tasks.is_closed {
                return None;
            }
            tasks = self
                .changed
                .wait(tasks)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the threads once the queued reads are done; later reads are refused.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Runs a read on one of the threads.
    pub(crate) async fn read<V: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Reader) -> Result<V, StoreError> + Send + 'static,
    ) -> Result<V, CallError> {
        let (answer, answered) = oneshot::channel();
        self.push(Box::new(move |reader| {
            if !answer.is_closed() {
                drop(answer.send(read(reader)));
            }
        }))?;
        match answered.await {
            Ok(result) => {
                let read = result.map_err(|error| CallError::from_read(&self.check.shard, &error));
                self.check.pass(read)
            }
            Err(_) => Err(CallError::unavailable(
                &self.check.shard,
                "a reading thread has ended",
            )),
        }
    }

    /// Runs a read on one of the threads.
    pub(crate) fn push(&self, task: ReadTask) -> Result<(), CallError> {
        let mut tasks = self.lock();
        if tasks.is_closed {
            return Err(CallError::unavailable(
                &self.check.shard,
                "the server is stopping",
            ));
        }
        if tasks.waiting.len() >= self.tasks_max {
            self.metrics.counters.overloaded_total.inc();
            return Err(CallError::Overloaded {
                shard: self.check.shard.clone(),
                waiting: tasks.waiting.len(),
                limit: self.tasks_max,
                retry_after: Duration::from_millis(100),
            });
        }
        tasks.waiting.push_back(task);
        self.metrics
            .gauges
            .waiting_reads
            .set(count(tasks.waiting.len()));
        drop(tasks);
        self.changed.notify_one();
        Ok(())
    }
}
