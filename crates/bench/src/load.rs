//! A load on one queue: what its connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// What is left after a measurement is left alone if no job of it is completed within this time.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(20);

/// How often a load looks whether its jobs are completed.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What all connections of a load share.
pub struct Load {
    pub(crate) queue: String,
    /// Jobs in one delivery and report.
    pub(crate) take: usize,
    payload: Vec<u8>,
    enqueued: AtomicU64,
    completed: AtomicU64,
    is_over: AtomicBool,
    is_stopped: AtomicBool,
    /// Jobs that may be enqueued before others are completed.
    room: Semaphore,
}

impl Load {
    /// A load on the queue of this name, whose consumers take so many jobs at once. Producers wait while `ahead` jobs
    /// are enqueued and not completed; absent: they never wait.
    pub fn new(
        queue: String,
        payload_bytes: usize,
        take: usize,
        ahead: Option<usize>,
    ) -> Arc<Self> {
        Arc::new(Self {
            queue,
            take,
            payload: payload(payload_bytes),
            enqueued: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            room: Semaphore::new(ahead.unwrap_or(Semaphore::MAX_PERMITS)),
        })
    }

    /// What each job carries.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Relaxed)
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Lets the producers end.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.room.close();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Lets the tasks that take jobs end.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Notes jobs that are durable.
    pub(crate) fn note_enqueued(&self, count: usize) {
        let count = u64::try_from(count).unwrap_or(0);
        self.enqueued.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes jobs that were completed, and lets as many follow.
    pub(crate) fn note_completed(&self, count: usize) {
        if count == 0 {
            return;
        }
        self.completed
            .fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
        if self.room.available_permits() < Semaphore::MAX_PERMITS - count {
            self.room.add_permits(count);
        }
    }

    /// Waits until all that was enqueued is completed; false if no job was completed for 20 s.
    pub(crate) async fn drain(&self) -> bool {
        let (mut before, mut changed) = (self.completed(), Instant::now());
        while self.completed() < self.enqueued() {
            sleep(LOOK_EVERY).await;
            if self.completed() > before {
                (before, changed) = (self.completed(), Instant::now());
            } else if changed.elapsed() > STALLED_AFTER {
                // What is left belongs to a queue that nobody takes from any more.
                return false;
            }
        }
        true
    }

    /// Takes room for so many jobs, if there is some.
    pub(crate) fn try_take_room(&self, jobs: usize) -> bool {
        match self.room.try_acquire_many(whole(jobs)) {
            Ok(room) => {
                room.forget();
                true
            }
            Err(_) => false,
        }
    }

    /// Waits until there is room for so many jobs, without taking it, or until the load is over.
    pub(crate) async fn until_room(&self, jobs: usize) {
        // A closed semaphore means that it is over.
        let _ = self.room.acquire_many(whole(jobs)).await;
    }
}

fn whole(jobs: usize) -> u32 {
    u32::try_from(jobs).unwrap_or(u32::MAX)
}

/// A payload of so many bytes that is a JSON string if it can be.
fn payload(size: usize) -> Vec<u8> {
    if size < 2 {
        return vec![b'7'; size];
    }
    format!("\"{}\"", "x".repeat(size - 2)).into_bytes()
}
