//! Full lives: jobs are enqueued, taken and completed, all at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::command::bench::load::{self, Face, Load};
use crate::command::bench::rate;
use crate::command::bench::target::{Target, Used};
use crate::exit::Failure;

/// Runs in before the measurement begins.
const WARM_UP: Duration = Duration::from_millis(500);

/// Batches of each connection that may be enqueued and not completed.
const BATCHES_AHEAD: usize = 4;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) per_second: f64,
    /// What the server used, for all jobs of this run, those of warm-up and end too.
    pub(super) used: Used,
}

/// Lives per second with so many connections, each with jobs by so many.
///
/// Through gRPC each connection carries a producer and a worker's stream. Over HTTP each does one call after the other.
pub(super) async fn measure(
    target: &Target,
    face: Face,
    connections: usize,
    batch: usize,
    payload_bytes: usize,
    time: Duration,
) -> Result<Measured, Failure> {
    let ahead = connections * batch * BATCHES_AHEAD;
    let name = format!("lives-{connections}-{batch}");
    let load = Load::new(face, &name, batch, payload_bytes, ahead);
    let mut producers = JoinSet::new();
    let mut workers = JoinSet::new();
    for number in 0..connections {
        match face {
            Face::Grpc => {
                let client = target.client()?;
                producers.spawn(load::produce(client.clone(), Arc::clone(&load)));
                workers.spawn(load::consume(client, number, Arc::clone(&load)));
            }
            Face::Http => {
                let caller = load.caller(target, "0s").await?;
                producers.spawn(load::live_by_calls(caller, Arc::clone(&load)));
            }
        }
    }
    measure_running(target, &load, producers, workers, time).await
}

/// Measures what is completed while these run, then ends them. What is left in the end is for the workers, if there
/// are any.
pub(super) async fn measure_running(
    target: &Target,
    load: &Load,
    mut producers: JoinSet<Result<(), Failure>>,
    mut workers: JoinSet<Result<(), Failure>>,
    time: Duration,
) -> Result<Measured, Failure> {
    let (used, completed) = (target.used().await, load.completed());
    sleep(WARM_UP).await;
    let (begun, before) = (Instant::now(), load.completed());
    sleep(time).await;
    let (took, after) = (begun.elapsed(), load.completed());
    load.end();
    while let Some(ended) = producers.join_next().await {
        ended.map_err(|error| Failure::failed(error.to_string()))??;
    }
    if !workers.is_empty() {
        load.drain().await;
    }
    let used = target.used().await.since(used);
    if let Some(Ok(Err(failure))) = workers.try_join_next() {
        return Err(failure);
    }
    workers.shutdown().await;
    if after == before {
        return Err(Failure::failed("no job was completed in the time given"));
    }
    Ok(Measured {
        per_second: rate(after - before, took),
        used: used.per_job(load.completed() - completed),
    })
}
