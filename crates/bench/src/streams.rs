//! The driver over gRPC: enqueues are calls or streams of batches; workers have streams.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ganger_client::{
    Bytes, Client, Delivery, LeaseRef, NewJob, Report, Submission, TakeFrom, TakeMode, WorkEvent,
    WorkOptions,
};

use crate::driver::{Connection, Driver, Work};
use crate::enqueue::Quota;
use crate::latency::Pace;
use crate::target::Target;
use crate::{Error, Load, Used};

/// Length of leases, after which jobs of a killed server are delivered again.
const LEASE_FOR: Duration = Duration::from_secs(5);

/// Number of concurrent enqueues while the time to the start of a job is measured, all over one connection; the worker
/// has one stream.
const LATENCY_PRODUCERS: usize = 16;

/// Number of credits of the worker meanwhile.
const LATENCY_CREDITS: u32 = 256;

/// The driver of a ganger server.
pub(crate) struct Streams<'a>(pub(crate) &'a Target);

impl Driver for Streams<'_> {
    fn used(&self) -> BoxFuture<'_, Used> {
        self.0.used().boxed()
    }

    fn connect<'a>(
        &'a self,
        work: Work,
        number: usize,
        load: &'a Arc<Load>,
    ) -> BoxFuture<'a, Result<Connection, Error>> {
        async move {
            let client = self.0.client()?;
            let mut connection = Connection::default();
            let Connection { producers, workers } = &mut connection;
            let load = Arc::clone(load);
            match work {
                Work::Fill(quota) => producers.push(fill(client, load, quota).boxed()),
                Work::Produce => producers.push(produce(client, load).boxed()),
                Work::Consume => workers.push(consume(client, number, load).boxed()),
                Work::Live => {
                    producers.push(produce(client.clone(), Arc::clone(&load)).boxed());
                    workers.push(consume(client, number, load).boxed());
                }
                Work::Pace(pace) => {
                    let worker = self.0.client()?;
                    worker.info().await?;
                    client.info().await?;
                    workers.push(work_at(worker, Arc::clone(&load), Arc::clone(&pace)).boxed());
                    for _ in 0..LATENCY_PRODUCERS {
                        let pace = Arc::clone(&pace);
                        producers.push(produce_at(client.clone(), job(&load), pace).boxed());
                    }
                }
            }
            Ok(connection)
        }
        .boxed()
    }
}

/// Returns a job of a load.
fn job(load: &Load) -> NewJob {
    NewJob::new("bench")
        .queue(&load.queue)
        .payload(load.payload().to_vec())
}

async fn fill(client: Client, load: Arc<Load>, quota: Arc<Quota>) -> Result<(), Error> {
    let job = job(&load);
    let mut refused = None;
    let mut bulk = client.bulk(|_, answer| {
        if let Err(error) = answer {
            refused = Some(error);
        }
    });
    while quota.take() {
        bulk.send(vec![job.clone(); load.batch]).await?;
    }
    bulk.finish().await?;
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// Enqueues one batch after the other until the load has ended, each when the previous one is durable.
pub(crate) async fn produce(client: Client, load: Arc<Load>) -> Result<(), Error> {
    let job = job(&load);
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

/// Leases over a worker's stream and completes every job, forever.
pub(crate) async fn consume(client: Client, number: usize, load: Arc<Load>) -> Result<(), Error> {
    // The next batch is delivered while one is reported, except for batches of one job.
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
        let reports = completions(jobs, Some("null".into()));
        let (reporter, load) = (reporter.clone(), Arc::clone(&load));
        let count = reports.len();
        let grant = {
            let reporter = reporter.clone();
            move || reporter.grant(u32::try_from(count).unwrap_or(0))
        };
        if credits == 1 {
            // The job has ended, so its credit is free again, as with `ganger worker`.
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

async fn produce_at(client: Client, job: NewJob, pace: Arc<Pace>) -> Result<(), Error> {
    while let Some(payload) = pace.next().await {
        client.enqueue(job.clone().payload(payload)).await?;
    }
    Ok(())
}

async fn work_at(client: Client, load: Arc<Load>, pace: Arc<Pace>) -> Result<(), Error> {
    let mut stream = client.work(WorkOptions {
        worker: "bench-idle".to_owned(),
        queues: vec![TakeFrom::new(&load.queue)],
        mode: TakeMode::Ordered,
        lease_for: None,
        credits: LATENCY_CREDITS,
    });
    let reporter = stream.reporter();
    while let Some(event) = stream.next().await {
        let WorkEvent::Jobs(jobs) = event else {
            continue;
        };
        for job in &jobs {
            pace.started(&job.payload);
        }
        let reports = completions(jobs, None);
        let reporter = reporter.clone();
        tokio::spawn(async move {
            let count = u32::try_from(reports.len()).unwrap_or(0);
            reporter.report_all(reports).await;
            reporter.grant(count);
        });
    }
    Ok(())
}

/// Returns reports that complete these jobs.
fn completions(jobs: Vec<Delivery>, result: Option<Bytes>) -> Vec<(LeaseRef, Report)> {
    let done = Report::Complete { result, next: None };
    let jobs = jobs.into_iter();
    jobs.map(|job| (job.lease, done.clone())).collect()
}
