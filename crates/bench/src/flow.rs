//! Loads with producers and consumers on connections of their own: taking what waits, a steady flow, a deep queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::driver::{Tasks, Work};
use crate::lives::measure_running;
use crate::load::STALLED_AFTER;
use crate::{BATCH, CONNECTIONS, Driver, Error, Load, Measured, enqueue, rate};

/// Jobs that wait before taking is measured.
const PREFILLED: u64 = 200_000;

/// Jobs that wait in the deep queue.
pub const DEEP: u64 = 1_000_000;

/// A slow server's queue is as long as it is after this time.
const FILL_MAX: Duration = Duration::from_secs(60);

/// Time that a server has to accept the deep queue.
const FILL_DEEP_MAX: Duration = Duration::from_secs(3_600);

/// Connections of the steady flow.
const PRODUCERS: usize = 2;
const CONSUMERS: usize = 4;

/// Batches that may be enqueued and not completed.
const BATCHES_AHEAD: usize = 100;

/// A load for [`mix`] and [`deep`].
pub fn load(queue: String, payload_bytes: usize) -> Arc<Load> {
    Load::new(queue, BATCH, payload_bytes, BATCH * BATCHES_AHEAD)
}

/// Takes and completes 200,000 jobs that wait.
pub async fn take(driver: &dyn Driver, load: &Arc<Load>) -> Result<Measured, Error> {
    enqueue::fill(driver, load, CONNECTIONS, PREFILLED, FILL_MAX).await?;
    empty(driver, load).await
}

/// Takes and completes all jobs of a load that wait.
pub async fn empty(driver: &dyn Driver, load: &Arc<Load>) -> Result<Measured, Error> {
    let used = driver.used().await;
    let begun = Instant::now();
    let mut consumers = consumers(driver, load, CONNECTIONS).await?;
    load.drain().await;
    let took = begun.elapsed();
    let total = load.completed();
    let used = driver.used().await.since(used).per_job(total);
    consumers.check()?;
    load.stop();
    consumers.stop().await;
    let enqueued = load.enqueued();
    if total < enqueued {
        return Err(Error::failed(format!(
            "only {total} of {enqueued} jobs were taken; none in the last {STALLED_AFTER:?}"
        )));
    }
    Ok(Measured {
        per_second: rate(total, took),
        used,
    })
}

/// Two producers and four consumers.
pub async fn mix(driver: &dyn Driver, load: &Arc<Load>, time: Duration) -> Result<Measured, Error> {
    let mut producers = Tasks::default();
    for number in 0..PRODUCERS {
        let connection = driver.connect(Work::Produce, number, load).await?;
        producers.start(driver, connection.producers);
    }
    let consumers = consumers(driver, load, CONSUMERS).await?;
    measure_running(driver, load, producers, consumers, time).await
}

/// The same flow above a million jobs that wait; `filler` enqueues those.
pub async fn deep(
    driver: &dyn Driver,
    filler: &dyn Driver,
    load: &Arc<Load>,
    time: Duration,
) -> Result<Measured, Error> {
    let fill = Load::new(load.queue.clone(), 1_000, load.payload().len(), 0);
    let sent = enqueue::fill(filler, &fill, CONNECTIONS, DEEP, FILL_DEEP_MAX).await?;
    if sent < DEEP {
        return Err(Error::failed(format!(
            "only {sent} of {DEEP} jobs were enqueued in {FILL_DEEP_MAX:?}"
        )));
    }
    // The store writes its backlog to the tables first, as it would on the way to so many jobs.
    sleep(Duration::from_secs(1)).await;
    mix(driver, load, time).await
}

async fn consumers(driver: &dyn Driver, load: &Arc<Load>, count: usize) -> Result<Tasks, Error> {
    let mut consumers = Tasks::default();
    for number in 0..count {
        let connection = driver.connect(Work::Consume, number, load).await?;
        consumers.start(driver, connection.workers);
    }
    Ok(consumers)
}
