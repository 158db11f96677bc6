//! Loads with producers and consumers on connections of their own: taking what waits, a steady flow, a deep queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::command::bench::lives::{Measured, measure_running};
use crate::command::bench::load::{self, Face, Load};
use crate::command::bench::target::Target;
use crate::command::bench::{BATCH, CONNECTIONS, enqueue, rate};
use crate::exit::Failure;

/// Jobs that wait before taking is measured.
const PREFILLED: u64 = 200_000;

/// Jobs that wait in the deep queue.
pub(super) const DEEP: u64 = 1_000_000;

/// Connections of the steady flow.
const PRODUCERS: usize = 2;
const CONSUMERS: usize = 4;

/// Batches that may be enqueued and not completed.
const BATCHES_AHEAD: usize = 100;

/// The same load on an empty queue and on a deep one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    pub(super) empty: Measured,
    pub(super) deep: Measured,
}

/// Takes and completes 200,000 jobs that wait.
pub(super) async fn take(
    target: &Target,
    face: Face,
    payload_bytes: usize,
) -> Result<Measured, Failure> {
    let load = Load::new(face, "take", BATCH, payload_bytes, 0);
    enqueue::fill(target, &load, CONNECTIONS, PREFILLED).await?;
    let used = target.used().await;
    let begun = Instant::now();
    let mut consumers = consumers(target, &load, CONNECTIONS).await?;
    load.drain().await;
    let took = begun.elapsed();
    let total = load.completed();
    let used = target.used().await.since(used).per_job(total);
    if let Some(Ok(Err(failure))) = consumers.try_join_next() {
        return Err(failure);
    }
    consumers.shutdown().await;
    if total < PREFILLED {
        return Err(Failure::failed(format!(
            "only {total} of {PREFILLED} jobs were taken in 20 s"
        )));
    }
    Ok(Measured {
        per_second: rate(total, took),
        used,
    })
}

/// Two producers and four consumers.
pub(super) async fn mix(
    target: &Target,
    face: Face,
    payload_bytes: usize,
    time: Duration,
) -> Result<Measured, Failure> {
    let load = Load::new(face, "mix", BATCH, payload_bytes, BATCH * BATCHES_AHEAD);
    flow(target, &load, time).await
}

/// The same flow on an empty queue and above a million jobs that wait.
pub(super) async fn depth(
    target: &Target,
    face: Face,
    payload_bytes: usize,
    time: Duration,
) -> Result<Depth, Failure> {
    let empty = mix(target, face, payload_bytes, time).await?;
    let load = Load::new(face, "deep", BATCH, payload_bytes, BATCH * BATCHES_AHEAD);
    let filler = Load::on(load.queue.clone(), Face::Grpc, 1_000, payload_bytes, 0);
    enqueue::fill(target, &filler, CONNECTIONS, DEEP).await?;
    // The store takes its breath, as it would on the way to so many.
    sleep(Duration::from_secs(1)).await;
    let deep = flow(target, &load, time).await?;
    Ok(Depth { empty, deep })
}

async fn flow(target: &Target, load: &Arc<Load>, time: Duration) -> Result<Measured, Failure> {
    let mut producers = JoinSet::new();
    for _ in 0..PRODUCERS {
        match load.face {
            Face::Grpc => producers.spawn(load::produce(target.client()?, Arc::clone(load))),
            Face::Http => {
                let caller = load.caller(target, "0s").await?;
                producers.spawn(load::produce_by_calls(caller, Arc::clone(load)))
            }
        };
    }
    let consumers = consumers(target, load, CONSUMERS).await?;
    measure_running(target, load, producers, consumers, time).await
}

async fn consumers(
    target: &Target,
    load: &Arc<Load>,
    count: usize,
) -> Result<JoinSet<Result<(), Failure>>, Failure> {
    let mut consumers = JoinSet::new();
    for number in 0..count {
        match load.face {
            Face::Grpc => {
                consumers.spawn(load::consume(target.client()?, number, Arc::clone(load)))
            }
            Face::Http => {
                let caller = load.caller(target, "1s").await?;
                consumers.spawn(load::consume_by_calls(caller, Arc::clone(load)))
            }
        };
    }
    Ok(consumers)
}
