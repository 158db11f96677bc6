//! A load on one queue: the state that its connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// Jobs that are left after a measurement are abandoned if none is completed within this time.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(20);

/// The state that all connections of a load share.
pub struct Load {
    pub(crate) queue: String,
    pub(crate) batch: usize,
    payload: Vec<u8>,
    enqueued: AtomicU64,
    completed: AtomicU64,
    is_over: AtomicBool,
    is_stopped: AtomicBool,
    /// One permit for each job that may be enqueued before others are completed.
    room: Semaphore,
}

impl Load {
    /// Creates a load on a queue. Producers wait while `ahead` jobs are enqueued and not completed.
    pub fn new(queue: String, batch: usize, payload_bytes: usize, ahead: usize) -> Arc<Self> {
        Arc::new(Self {
            queue,
            batch,
            payload: payload(payload_bytes),
            enqueued: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            room: Semaphore::new(ahead),
        })
    }

    /// Returns the payload of each job.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Relaxed)
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Makes the producers end after their current batch.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.room.close();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends the tasks that lease jobs.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Counts jobs that were enqueued by others than the producers.
    pub(crate) fn note_enqueued(&self, count: usize) {
        let count = u64::try_from(count).unwrap_or(0);
        self.enqueued.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts completed jobs, and allows as many new ones.
    pub(crate) fn note_completed(&self, count: usize) {
        self.completed
            .fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
        self.room.add_permits(count);
    }

    /// Waits until all enqueued jobs are completed, so that the next measurement starts with an empty queue.
    pub(crate) async fn drain(&self) {
        let (mut before, mut changed) = (self.completed(), Instant::now());
        while self.completed() < self.enqueued() {
            sleep(Duration::from_millis(5)).await;
            if self.completed() > before {
                (before, changed) = (self.completed(), Instant::now());
            } else if changed.elapsed() > STALLED_AFTER {
                // The remaining jobs do no harm: their queue is not used any more.
                return;
            }
        }
    }

    /// Waits for room; returns false once the load has ended.
    pub(crate) async fn has_room(&self) -> bool {
        if self.is_over() {
            return false;
        }
        let batch = u32::try_from(self.batch).unwrap_or(1);
        match self.room.acquire_many(batch).await {
            Ok(room) => room.forget(),
            Err(_) => return false,
        }
        true
    }
}

/// Returns a payload of `size` bytes, which is a JSON string if `size` is at least 2.
fn payload(size: usize) -> Vec<u8> {
    if size < 2 {
        return vec![b'7'; size];
    }
    format!("\"{}\"", "x".repeat(size - 2)).into_bytes()
}
