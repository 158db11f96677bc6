//! Full lives: producers enqueue, workers take over their streams and complete, all at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ganger_client::{
    Client, NewJob, Report, Submission, TakeFrom, TakeMode, WorkEvent, WorkOptions,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::command::bench::target::Target;
use crate::command::bench::{payload, rate};
use crate::exit::Failure;

/// Runs in before the measurement begins.
const WARM_UP: Duration = Duration::from_millis(500);

/// Batches of each connection that may be enqueued and not completed.
const BATCHES_AHEAD: usize = 4;

/// What is left after the measurement is completed within this time, or left alone.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lives {
    pub(super) per_second: f64,
    /// All lives of this run, those of warm-up and end too: for CPU seconds per life.
    pub(super) total: u64,
}

struct Load {
    queue: String,
    batch: usize,
    payload: ganger_client::Bytes,
    completed: AtomicU64,
    is_over: AtomicBool,
    /// Jobs that may be enqueued before others are completed.
    room: Semaphore,
}

/// Lives per second with so many connections, each with jobs by so many.
pub(super) async fn measure(
    target: &Target,
    connections: usize,
    batch: usize,
    payload_bytes: usize,
    time: Duration,
) -> Result<Lives, Failure> {
    let load = Arc::new(Load {
        queue: format!("bench-{connections}-{batch}-{}", std::process::id()),
        batch,
        payload: payload(payload_bytes),
        completed: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        room: Semaphore::new(connections * batch * BATCHES_AHEAD),
    });
    let mut producers = JoinSet::new();
    let mut workers = JoinSet::new();
    for number in 0..connections {
        let client = target.client()?;
        producers.spawn(produce(client.clone(), Arc::clone(&load)));
        workers.spawn(work(client, number, Arc::clone(&load)));
    }
    sleep(WARM_UP).await;
    let (begun, before) = (Instant::now(), load.completed.load(Ordering::Relaxed));
    sleep(time).await;
    let (took, after) = (begun.elapsed(), load.completed.load(Ordering::Relaxed));
    load.is_over.store(true, Ordering::Relaxed);
    load.room.close();
    let mut enqueued = 0;
    while let Some(ended) = producers.join_next().await {
        enqueued += ended.map_err(|error| Failure::failed(error.to_string()))??;
    }
    drain(&load, enqueued).await;
    workers.shutdown().await;
    if after == before {
        return Err(Failure::failed("no job was completed in the time given"));
    }
    let total = load.completed.load(Ordering::Relaxed);
    Ok(Lives {
        per_second: rate(after - before, took),
        total,
    })
}

/// Enqueues until it is over; the number of jobs.
async fn produce(client: Client, load: Arc<Load>) -> Result<u64, Failure> {
    let job = NewJob::new("bench")
        .queue(&load.queue)
        .payload(load.payload.clone());
    let batch = u32::try_from(load.batch).unwrap_or(1);
    let mut enqueued = 0;
    while !load.is_over.load(Ordering::Relaxed) {
        let Ok(room) = load.room.acquire_many(batch).await else {
            break;
        };
        room.forget();
        let jobs = vec![job.clone(); load.batch];
        client
            .enqueue_all(Submission {
                jobs,
                ..Submission::default()
            })
            .await?;
        enqueued += u64::from(batch);
    }
    Ok(enqueued)
}

/// Takes and completes for ever.
async fn work(client: Client, number: usize, load: Arc<Load>) {
    // While a batch is reported the next one is on its way; one by one means one by one.
    let credits = if load.batch == 1 { 1 } else { load.batch * 2 };
    let mut stream = client.work(WorkOptions {
        worker: format!("bench-{number}"),
        queues: vec![TakeFrom::new(&load.queue)],
        mode: TakeMode::Ordered,
        lease_for: None,
        credits: u32::try_from(credits).unwrap_or(1),
    });
    let reporter = stream.reporter();
    while let Some(event) = stream.next().await {
        let WorkEvent::Jobs(jobs) = event else {
            continue;
        };
        let reports = jobs.into_iter().map(|job| {
            (
                job.held,
                Report::Complete {
                    result: Some("null".into()),
                    next: None,
                },
            )
        });
        let (reporter, load) = (reporter.clone(), Arc::clone(&load));
        let reports: Vec<_> = reports.collect();
        let report = async move {
            let count = reports.len();
            let answers = reporter.report_all(reports).await;
            let completed = answers.iter().filter(|answer| answer.is_ok()).count();
            load.completed
                .fetch_add(u64::try_from(completed).unwrap_or(0), Ordering::Relaxed);
            load.room.add_permits(count);
            reporter.grant(u32::try_from(count).unwrap_or(0));
        };
        if credits == 1 {
            report.await;
        } else {
            tokio::spawn(report);
        }
    }
}

/// Waits until all that was enqueued is completed, so that the next measurement begins with nothing.
async fn drain(load: &Load, enqueued: u64) {
    let all = async {
        while load.completed.load(Ordering::Relaxed) < enqueued {
            sleep(Duration::from_millis(10)).await;
        }
    };
    // What is left belongs to a queue that nobody takes from any more.
    let _ = timeout(DRAIN_WITHIN, all).await;
}
