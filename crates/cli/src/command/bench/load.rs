//! A load on one queue: connections that enqueue, connections that take and complete, through one face.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use ganger_client::{
    Client, NewJob, Report, Submission, TakeFrom, TakeMode, WorkEvent, WorkOptions,
};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::command::bench::caller::Caller;
use crate::command::bench::payload;
use crate::command::bench::target::Target;
use crate::exit::Failure;

/// What is left after a measurement is completed within this time, or left alone.
const DRAIN_WITHIN: Duration = Duration::from_secs(20);

/// A delivery that is lost with a server that is killed comes again after so long.
const LEASE_FOR: Duration = Duration::from_secs(5);

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Face {
    /// gRPC: enqueues are calls, workers have streams.
    Grpc,
    /// HTTP/1.1: everything is a call on a connection that stays open.
    Http,
}

impl Face {
    /// For tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC",
            Self::Http => "HTTP",
        }
    }

    /// For JSON and for names of queues.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }
}

/// What all connections of a load share.
pub(super) struct Load {
    pub(super) face: Face,
    pub(super) queue: String,
    pub(super) batch: usize,
    pub(super) payload: ganger_client::Bytes,
    enqueued: AtomicU64,
    completed: AtomicU64,
    is_over: AtomicBool,
    /// Jobs that may be enqueued before others are completed.
    room: Semaphore,
}

impl Load {
    /// A load on a queue of its own. So many jobs may be ahead of the consumers.
    pub(super) fn new(
        face: Face,
        name: &str,
        batch: usize,
        payload_bytes: usize,
        ahead: usize,
    ) -> Arc<Self> {
        let queue = format!("bench-{name}-{}-{}", face.key(), std::process::id());
        Self::on(queue, face, batch, payload_bytes, ahead)
    }

    /// Likewise, on a queue by name.
    pub(super) fn on(
        queue: String,
        face: Face,
        batch: usize,
        payload_bytes: usize,
        ahead: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            face,
            queue,
            batch,
            payload: payload(payload_bytes),
            enqueued: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            room: Semaphore::new(ahead),
        })
    }

    pub(super) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Lets the producers end.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.room.close();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Notes jobs that are there besides those of the producers.
    pub(super) fn note_enqueued(&self, count: usize) {
        let count = u64::try_from(count).unwrap_or(0);
        self.enqueued.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes jobs that were completed, and lets as many follow.
    pub(super) fn note_completed(&self, count: usize) {
        self.completed
            .fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
        self.room.add_permits(count);
    }

    /// Waits until all that was enqueued is completed, so that the next measurement begins with nothing.
    pub(super) async fn drain(&self) {
        let all = async {
            while self.completed() < self.enqueued.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        // What is left belongs to a queue that nobody takes from any more.
        let _ = timeout(DRAIN_WITHIN, all).await;
    }

    /// Waits for room; false once it is over.
    async fn has_room(&self) -> bool {
        if self.is_over() {
            return false;
        }
        let batch = u32::try_from(self.batch).unwrap_or(1);
        match self.room.acquire_many(batch).await {
            Ok(room) => room.forget(),
            Err(_) => return false,
        }
        true
    }

    /// A job of this load.
    pub(super) fn job(&self) -> NewJob {
        NewJob::new("bench")
            .queue(&self.queue)
            .payload(self.payload.clone())
    }

    /// An HTTP connection for this load.
    pub(super) async fn caller(&self, target: &Target, wait: &str) -> Result<Caller, Failure> {
        Caller::connect(target, &self.queue, self.batch, &self.payload, wait).await
    }
}

/// Enqueues batch after batch until it is over, each when the one before is durable.
pub(super) async fn produce(client: Client, load: Arc<Load>) -> Result<(), Failure> {
    let job = load.job();
    while load.has_room().await {
        let jobs = vec![job.clone(); load.batch];
        let submission = Submission {
            jobs,
            ..Submission::default()
        };
        client.enqueue_all(submission).await?;
        load.note_enqueued(load.batch);
    }
    Ok(())
}

/// Likewise, over HTTP.
pub(super) async fn produce_by_calls(mut caller: Caller, load: Arc<Load>) -> Result<(), Failure> {
    while load.has_room().await {
        caller.enqueue().await?;
        load.note_enqueued(load.batch);
    }
    Ok(())
}

/// Takes over a worker's stream, and completes, forever.
pub(super) async fn consume(client: Client, number: usize, load: Arc<Load>) -> Result<(), Failure> {
    // While a batch is reported the next one is on its way; one by one means one by one.
    let credits = if load.batch == 1 { 1 } else { load.batch * 2 };
    let mut stream = client.work(WorkOptions {
        worker: format!("bench-{number}"),
        queues: vec![TakeFrom::new(&load.queue)],
        mode: TakeMode::Ordered,
        lease_for: Some(LEASE_FOR),
        credits: u32::try_from(credits).unwrap_or(1),
    });
    let reporter = stream.reporter();
    while let Some(event) = stream.next().await {
        let WorkEvent::Jobs(jobs) = event else {
            continue;
        };
        let done = Report::Complete {
            result: Some("null".into()),
            next: None,
        };
        let reports: Vec<_> = jobs
            .into_iter()
            .map(|job| (job.held, done.clone()))
            .collect();
        let (reporter, load) = (reporter.clone(), Arc::clone(&load));
        let count = reports.len();
        let grant = {
            let reporter = reporter.clone();
            move || reporter.grant(u32::try_from(count).unwrap_or(0))
        };
        if credits == 1 {
            // The run has ended, so its place is free, as with `ganger worker`.
            grant();
        }
        let report = async move {
            let answers = reporter.report_all(reports).await;
            load.note_completed(answers.iter().filter(|answer| answer.is_ok()).count());
            if credits > 1 {
                grant();
            }
        };
        if credits == 1 {
            report.await;
        } else {
            tokio::spawn(report);
        }
    }
    Ok(())
}

/// Takes and completes by calls, forever.
pub(super) async fn consume_by_calls(mut caller: Caller, load: Arc<Load>) -> Result<(), Failure> {
    loop {
        caller.lease().await?;
        load.note_completed(caller.complete().await?);
    }
}

/// Enqueues, takes and completes by calls, one after the other on one connection, until it is over.
pub(super) async fn live_by_calls(mut caller: Caller, load: Arc<Load>) -> Result<(), Failure> {
    while !load.is_over() {
        caller.enqueue().await?;
        load.note_enqueued(load.batch);
        // All connections take from one queue: somebody else may have had a part of these jobs, then we have theirs.
        caller.lease().await?;
        load.note_completed(caller.complete().await?);
    }
    Ok(())
}
