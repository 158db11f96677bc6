//! The measurement of full lives: jobs are enqueued, leased and completed at the same time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::driver::{Tasks, Work};
use crate::{Driver, Error, Load, Measured, rate};

/// Time before the measurement, in which all connections reach their full rate.
const WARM_UP: Duration = Duration::from_millis(500);

/// Maximum number of batches of a connection that are enqueued and not completed.
pub(crate) const BATCHES_AHEAD: usize = 4;

/// Creates a load for [`measure`] with this number of connections.
pub fn load(queue: String, connections: usize, batch: usize, payload_bytes: usize) -> Arc<Load> {
    Load::new(
        queue,
        batch,
        payload_bytes,
        connections * batch * BATCHES_AHEAD,
    )
}

/// Measures full lives per second with this number of connections.
///
/// A stream serves a producer and a worker at the same time; other connections make one call after the other.
pub async fn measure(
    driver: &dyn Driver,
    load: &Arc<Load>,
    connections: usize,
    time: Duration,
) -> Result<Measured, Error> {
    let (mut producers, mut workers) = (Tasks::default(), Tasks::default());
    for number in 0..connections {
        let connection = driver.connect(Work::Live, number, load).await?;
        producers.start(driver, connection.producers);
        workers.start(driver, connection.workers);
    }
    measure_running(driver, load, producers, workers, time).await
}

/// Measures the completions while these tasks run, then ends them. Workers, if there are any, complete the remaining
/// jobs.
pub(crate) async fn measure_running(
    driver: &dyn Driver,
    load: &Load,
    mut producers: Tasks,
    mut workers: Tasks,
    time: Duration,
) -> Result<Measured, Error> {
    let (used, completed) = (driver.used().await, load.completed());
    sleep(WARM_UP).await;
    let (begun, before) = (Instant::now(), load.completed());
    sleep(time).await;
    let (took, after) = (begun.elapsed(), load.completed());
    load.end();
    producers.finish().await?;
    if !workers.is_empty() {
        load.drain().await;
    }
    let used = driver.used().await.since(used);
    workers.check()?;
    load.stop();
    workers.stop().await;
    if after == before {
        return Err(Error::failed("no job was completed during the measurement"));
    }
    Ok(Measured {
        per_second: rate(after - before, took),
        used: used.per_job(load.completed() - completed),
    })
}
