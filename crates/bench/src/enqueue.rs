//! The measurement of enqueueing alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::driver::{Tasks, Work};
use crate::{Driver, Error, Load, Measured, rate};

/// The number of jobs that a load which only enqueues still has to send, shared by its connections.
pub struct Quota {
    batch: u64,
    sent: AtomicU64,
    jobs_max: u64,
    ends_at: Instant,
}

impl Quota {
    fn new(load: &Load, jobs_max: u64, time_max: Duration) -> Arc<Self> {
        Arc::new(Self {
            batch: u64::try_from(load.batch).unwrap_or(1),
            sent: AtomicU64::new(0),
            jobs_max,
            ends_at: Instant::now() + time_max,
        })
    }

    /// Takes a batch to send; returns false if none is left or the time is over.
    pub(crate) fn take(&self) -> bool {
        let sent = self.sent.fetch_add(self.batch, Ordering::Relaxed);
        let is_left = sent < self.jobs_max && Instant::now() < self.ends_at;
        if !is_left {
            self.sent.fetch_sub(self.batch, Ordering::Relaxed);
        }
        is_left
    }
}

/// Measures the rate at which this number of connections enqueue at the same time.
pub async fn measure(
    driver: &dyn Driver,
    load: &Arc<Load>,
    connections: usize,
    time: Duration,
) -> Result<Measured, Error> {
    let used = driver.used().await;
    let begun = Instant::now();
    let total = run(driver, load, connections, Quota::new(load, u64::MAX, time)).await?;
    let took = begun.elapsed();
    Ok(Measured {
        per_second: rate(total, took),
        used: driver.used().await.since(used).per_job(total),
    })
}

/// Enqueues at least `jobs` jobs, or as many as a slow server accepts within `time_max`.
pub(crate) async fn fill(
    driver: &dyn Driver,
    load: &Arc<Load>,
    connections: usize,
    jobs: u64,
    time_max: Duration,
) -> Result<u64, Error> {
    run(driver, load, connections, Quota::new(load, jobs, time_max)).await
}

async fn run(
    driver: &dyn Driver,
    load: &Arc<Load>,
    connections: usize,
    quota: Arc<Quota>,
) -> Result<u64, Error> {
    let mut tasks = Tasks::default();
    for number in 0..connections {
        let work = Work::Fill(Arc::clone(&quota));
        let connection = driver.connect(work, number, load).await?;
        tasks.start(driver, connection.producers);
    }
    tasks.finish().await?;
    let sent = quota.sent.load(Ordering::Relaxed);
    load.note_enqueued(usize::try_from(sent).unwrap_or(0));
    Ok(sent)
}
