//! Threads that read committed state, so that neither the shard nor the writer waits for reads.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ganger_store::{Reader, StoreError};
use ganger_types::ShardId;
use tokio::sync::oneshot;

use crate::CallError;
use crate::metrics::{ShardMetrics, count};

/// A read for a reader thread.
pub(crate) type ReadTask = Box<dyn FnOnce(&mut dyn Reader) + Send>;

/// A bounded queue of reads, and the threads that run them.
pub(crate) struct ReadPool {
    shard: ShardId,
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
        shard: &ShardId,
        tasks_max: usize,
        metrics: Arc<ShardMetrics>,
        readers: Vec<R>,
    ) -> std::io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let pool = Arc::new(Self {
            shard: shard.clone(),
            tasks_max,
            metrics,
            tasks: Mutex::default(),
            changed: Condvar::new(),
        });
        let mut threads = Vec::with_capacity(readers.len());
        for mut reader in readers {
            let pool = Arc::clone(&pool);
            let thread = std::thread::Builder::new().name(format!("read-{shard}"));
            threads.push(thread.spawn(move || pool.work(&mut reader))?);
        }
        Ok((pool, threads))
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
            Ok(result) => result.map_err(|error| CallError::from_read(&self.shard, &error)),
            Err(_) => Err(CallError::unavailable(
                &self.shard,
                "a reading thread has ended",
            )),
        }
    }

    /// Runs a read on one of the threads.
    pub(crate) fn push(&self, task: ReadTask) -> Result<(), CallError> {
        let mut tasks = self.lock();
        if tasks.is_closed {
            return Err(CallError::unavailable(
                &self.shard,
                "the server is stopping",
            ));
        }
        if tasks.waiting.len() >= self.tasks_max {
            self.metrics.counters.overloaded_total.inc();
            return Err(CallError::Overloaded {
                shard: self.shard.clone(),
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
