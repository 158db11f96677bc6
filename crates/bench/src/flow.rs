//! Loads with separate producers and consumers: leasing from a full queue, a steady flow, a deep queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::driver::{Tasks, Work};
use crate::lives::measure_running;
use crate::load::STALLED_AFTER;
use crate::{BATCH, CONNECTIONS, Driver, Error, Load, Measured, enqueue, rate};

/// Number of ready jobs before leasing is measured.
const PREFILLED: u64 = 200_000;

/// Number of ready jobs in the deep queue.
pub const DEEP: u64 = 1_000_000;

/// Longest time to fill the queue; a slow server's queue is then shorter.
const FILL_MAX: Duration = Duration::from_secs(60);

/// Longest time to fill the deep queue.
const FILL_DEEP_MAX: Duration = Duration::from_secs(3_600);

/// Number of producers of the steady flow.
const PRODUCERS: usize = 2;
/// Number of consumers of the steady flow.
const CONSUMERS: usize = 4;

/// Maximum number of batches that are enqueued and not completed.
const BATCHES_AHEAD: usize = 100;

/// Creates a load for [`mix`] and [`deep`].
pub fn load(queue: String, payload_bytes: usize) -> Arc<Load> {
    Load::new(queue, BATCH, payload_bytes, BATCH * BATCHES_AHEAD)
}

/// Measures leasing and completing 200,000 ready jobs.
pub async fn take(driver: &dyn Driver, load: &Arc<Load>) -> Result<Measured, Error> {
    enqueue::fill(driver, load, CONNECTIONS, PREFILLED, FILL_MAX).await?;
    empty(driver, load).await
}

/// Measures leasing and completing all ready jobs of a load.
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
            "only {total} of {enqueued} jobs were completed; none in the last {STALLED_AFTER:?}"
        )));
    }
    Ok(Measured {
        per_second: rate(total, took),
        used,
    })
}

/// Measures two producers and four consumers at the same time.
pub async fn mix(driver: &dyn Driver, load: &Arc<Load>, time: Duration) -> Result<Measured, Error> {
    let mut producers = Tasks::default();
    for number in 0..PRODUCERS {
        let connection = driver.connect(Work::Produce, number, load).await?;
        producers.start(driver, connection.producers);
    }
    let consumers = consumers(driver, load, CONSUMERS).await?;
    measure_running(driver, load, producers, consumers, time).await
}

/// Measures the same flow in a queue with a million ready jobs, which `filler` enqueues.
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
    // The store first writes its backlog to the tables, as it would if so many jobs arrived slowly.
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
