//! Enqueueing alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::command::bench::lives::Measured;
use crate::command::bench::load::{Face, Load};
use crate::command::bench::rate;
use crate::command::bench::target::Target;
use crate::exit::Failure;

/// When a connection stops.
#[derive(Clone, Copy)]
enum Until {
    Moment(Instant),
    Number(u64),
}

impl Until {
    fn is_reached(self, sent: u64) -> bool {
        match self {
            Self::Moment(moment) => Instant::now() >= moment,
            Self::Number(number) => sent >= number,
        }
    }
}

/// Jobs per second with so many connections, each enqueueing by so many: through gRPC as streams of batches, over HTTP
/// one batch after the other.
pub(super) async fn measure(
    target: &Target,
    load: &Arc<Load>,
    connections: usize,
    time: Duration,
) -> Result<Measured, Failure> {
    let used = target.used().await;
    let begun = Instant::now();
    let total = run(target, load, connections, Until::Moment(begun + time)).await?;
    let took = begun.elapsed();
    Ok(Measured {
        per_second: rate(total, took),
        used: target.used().await.since(used).per_job(total),
    })
}

/// Enqueues so many, or a little more.
pub(super) async fn fill(
    target: &Target,
    load: &Arc<Load>,
    connections: usize,
    jobs: u64,
) -> Result<(), Failure> {
    run(target, load, connections, Until::Number(jobs)).await?;
    Ok(())
}

async fn run(
    target: &Target,
    load: &Arc<Load>,
    connections: usize,
    until: Until,
) -> Result<u64, Failure> {
    let sent = Arc::new(AtomicU64::new(0));
    let mut producers = JoinSet::new();
    for _ in 0..connections {
        let (load, sent) = (Arc::clone(load), Arc::clone(&sent));
        match load.face {
            Face::Grpc => {
                let client = target.client()?;
                producers.spawn(async move { stream(&client, &load, &sent, until).await });
            }
            Face::Http => {
                let caller = load.caller(target, "0s").await?;
                producers.spawn(async move { call(caller, &load, &sent, until).await });
            }
        }
    }
    while let Some(ended) = producers.join_next().await {
        ended.map_err(|error| Failure::failed(error.to_string()))??;
    }
    let sent = sent.load(Ordering::Relaxed);
    load.note_enqueued(usize::try_from(sent).unwrap_or(0));
    Ok(sent)
}

async fn stream(
    client: &ganger_client::Client,
    load: &Load,
    sent: &AtomicU64,
    until: Until,
) -> Result<(), Failure> {
    let job = load.job();
    let mut refused = None;
    let mut bulk = client.bulk(|_, answer| {
        if let Err(error) = answer {
            refused = Some(error);
        }
    });
    let batch = u64::try_from(load.batch).unwrap_or(1);
    while !until.is_reached(sent.fetch_add(batch, Ordering::Relaxed)) {
        bulk.send(vec![job.clone(); load.batch]).await?;
    }
    sent.fetch_sub(batch, Ordering::Relaxed);
    bulk.finish().await?;
    refused.map_or(Ok(()), |error| Err(error.into()))
}

async fn call(
    mut caller: crate::command::bench::caller::Caller,
    load: &Load,
    sent: &AtomicU64,
    until: Until,
) -> Result<(), Failure> {
    let batch = u64::try_from(load.batch).unwrap_or(1);
    while !until.is_reached(sent.fetch_add(batch, Ordering::Relaxed)) {
        caller.enqueue().await?;
    }
    sent.fetch_sub(batch, Ordering::Relaxed);
    Ok(())
}
