//! Enqueueing alone.

use std::time::Duration;

use ganger_client::{Client, NewJob, Submission};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::command::bench::target::Target;
use crate::command::bench::{payload, rate};
use crate::exit::Failure;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enqueued {
    pub(super) per_second: f64,
    pub(super) total: u64,
}

/// Jobs per second with so many connections, each enqueueing by so many.
pub(super) async fn measure(
    target: &Target,
    connections: usize,
    batch: usize,
    payload_bytes: usize,
    time: Duration,
) -> Result<Enqueued, Failure> {
    let queue = format!("bench-enqueue-{}", std::process::id());
    let job = NewJob::new("bench")
        .queue(queue)
        .payload(payload(payload_bytes));
    let begun = Instant::now();
    let mut producers = JoinSet::new();
    for _ in 0..connections {
        producers.spawn(produce(target.client()?, job.clone(), batch, begun + time));
    }
    let mut total = 0;
    while let Some(ended) = producers.join_next().await {
        total += ended.map_err(|error| Failure::failed(error.to_string()))??;
    }
    Ok(Enqueued {
        per_second: rate(total, begun.elapsed()),
        total,
    })
}

async fn produce(
    client: Client,
    job: NewJob,
    batch: usize,
    until: Instant,
) -> Result<u64, Failure> {
    let mut total = 0;
    while Instant::now() < until {
        let jobs = vec![job.clone(); batch];
        client
            .enqueue_all(Submission {
                jobs,
                ..Submission::default()
            })
            .await?;
        total += u64::try_from(batch).unwrap_or(0);
    }
    Ok(total)
}
