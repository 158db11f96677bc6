//! The time from an enqueue to the start of the job, with an idle worker.
//!
//! Jobs come at a steady rate whether or not those before have started, each over a connection that has nothing else to
//! do; a job that had to wait for one counts from the moment it was due. The payload carries that moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ganger_client::{Client, NewJob, Report, TakeFrom, TakeMode, WorkEvent, WorkOptions};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::command::bench::caller::Caller;
use crate::command::bench::load::{Face, Load};
use crate::command::bench::target::Target;
use crate::exit::Failure;

/// A job that has not started after so long never will.
const START_WITHIN: Duration = Duration::from_secs(20);

/// Connections that enqueue and, over HTTP, as many that wait for jobs. Through gRPC all share one, and the worker has
/// one stream.
const CONNECTIONS: usize = 16;

/// Jobs the worker has room for.
const CREDITS: u32 = 256;

/// What was measured: from before the enqueue was sent until the worker has the job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) samples: usize,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

/// When jobs are due, and how long each one took.
struct Pace {
    begun: Instant,
    interval: Duration,
    jobs: usize,
    next: AtomicUsize,
    payload_bytes: usize,
    took: mpsc::UnboundedSender<Duration>,
}

impl Pace {
    /// Waits until the next job is due; its payload. Nothing if all are sent.
    async fn next(&self) -> Option<Vec<u8>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.jobs {
            return None;
        }
        let due = self.begun + self.interval * u32::try_from(number).unwrap_or(u32::MAX);
        let is_early = Instant::now() < due;
        sleep_until(due).await;
        // The timer is coarse, and none of the server's business; being late for want of a connection is.
        let sent = if is_early { Instant::now() } else { due };
        let nanos = sent.duration_since(self.begun).as_nanos();
        let mut text = format!("\"{nanos:020}").into_bytes();
        text.resize(self.payload_bytes.max(text.len() + 1) - 1, b' ');
        text.push(b'"');
        Some(text)
    }

    /// A job has started that carries this payload.
    fn started(&self, payload: &str) {
        let now = self.begun.elapsed();
        let sent = payload.trim_matches('"').trim().parse().unwrap_or(0);
        // Nobody counts any more once all are there.
        let _ = self
            .took
            .send(now.saturating_sub(Duration::from_nanos(sent)));
    }
}

/// So many jobs a second.
pub(super) async fn measure(
    target: &Target,
    face: Face,
    a_second: u32,
    payload_bytes: usize,
    time: Duration,
) -> Result<Latency, Failure> {
    let name = format!("latency-{a_second}");
    let load = Load::new(face, &name, 1, payload_bytes, 0);
    let interval = Duration::from_secs(1) / a_second;
    let jobs = usize::try_from(time.as_nanos() / interval.as_nanos().max(1)).unwrap_or(1);
    let (took, mut times) = mpsc::unbounded_channel();
    let pace = Arc::new(Pace {
        // Connections are made before the first job is due.
        begun: Instant::now() + Duration::from_millis(500),
        interval,
        jobs: jobs.max(10),
        next: AtomicUsize::new(0),
        payload_bytes,
        took,
    });
    let mut tasks = start(target, &load, &pace).await?;
    let mut samples = Vec::with_capacity(pace.jobs);
    while samples.len() < pace.jobs {
        match timeout(START_WITHIN, times.recv()).await {
            Ok(Some(took)) => samples.push(took),
            Ok(None) | Err(_) => {
                while let Some(ended) = tasks.try_join_next() {
                    ended.map_err(|error| Failure::failed(error.to_string()))??;
                }
                return Err(Failure::failed("a job did not start within 20 s"));
            }
        }
    }
    tasks.shutdown().await;
    Ok(summarize(samples))
}

async fn start(
    target: &Target,
    load: &Arc<Load>,
    pace: &Arc<Pace>,
) -> Result<JoinSet<Result<(), Failure>>, Failure> {
    let mut tasks = JoinSet::new();
    if load.face == Face::Grpc {
        let (producer, worker) = (target.client()?, target.client()?);
        worker.info().await?;
        producer.info().await?;
        tasks.spawn(work(worker, Arc::clone(load), Arc::clone(pace)));
        for _ in 0..CONNECTIONS {
            tasks.spawn(produce(producer.clone(), load.job(), Arc::clone(pace)));
        }
        return Ok(tasks);
    }
    for _ in 0..CONNECTIONS {
        let worker = load.caller(target, "10s").await?;
        tasks.spawn(work_by_calls(worker, Arc::clone(pace)));
        let producer = load.caller(target, "0s").await?;
        let queue = load.queue.clone();
        tasks.spawn(produce_by_calls(producer, queue, Arc::clone(pace)));
    }
    Ok(tasks)
}

async fn produce(client: Client, job: NewJob, pace: Arc<Pace>) -> Result<(), Failure> {
    while let Some(payload) = pace.next().await {
        client.enqueue(job.clone().payload(payload)).await?;
    }
    Ok(())
}

async fn produce_by_calls(
    mut caller: Caller,
    queue: String,
    pace: Arc<Pace>,
) -> Result<(), Failure> {
    while let Some(payload) = pace.next().await {
        caller.prepare(&queue, &payload);
        caller.enqueue().await?;
    }
    Ok(())
}

async fn work(client: Client, load: Arc<Load>, pace: Arc<Pace>) -> Result<(), Failure> {
    let mut stream = client.work(WorkOptions {
        worker: "bench-idle".to_owned(),
        queues: vec![TakeFrom::new(&load.queue)],
        mode: TakeMode::Ordered,
        lease_for: None,
        credits: CREDITS,
    });
    let reporter = stream.reporter();
    while let Some(event) = stream.next().await {
        let WorkEvent::Jobs(jobs) = event else {
            continue;
        };
        for job in &jobs {
            pace.started(&String::from_utf8_lossy(&job.payload));
        }
        let done = Report::Complete {
            result: None,
            next: None,
        };
        let reports: Vec<_> = jobs
            .into_iter()
            .map(|job| (job.held, done.clone()))
            .collect();
        let reporter = reporter.clone();
        tokio::spawn(async move {
            let count = u32::try_from(reports.len()).unwrap_or(0);
            reporter.report_all(reports).await;
            reporter.grant(count);
        });
    }
    Ok(())
}

async fn work_by_calls(mut caller: Caller, pace: Arc<Pace>) -> Result<(), Failure> {
    loop {
        caller.lease_with(|payload| pace.started(payload)).await?;
        caller.complete().await?;
    }
}

fn summarize(mut samples: Vec<Duration>) -> Latency {
    samples.sort();
    let at = |percent: usize| samples[(samples.len() * percent / 100).min(samples.len() - 1)];
    Latency {
        samples: samples.len(),
        p50: at(50),
        p99: at(99),
        max: at(100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_the_sorted_samples() {
        let samples = (1..=100).rev().map(Duration::from_millis).collect();
        let latency = summarize(samples);
        assert_eq!(latency.p50, Duration::from_millis(51));
        assert_eq!(latency.p99, Duration::from_millis(100));
        assert_eq!(latency.max, Duration::from_millis(100));
        assert_eq!(summarize(vec![Duration::ZERO]).p99, Duration::ZERO);
    }

    #[tokio::test]
    async fn a_payload_carries_the_moment_its_job_was_sent() {
        let (took, mut times) = mpsc::unbounded_channel();
        let pace = Pace {
            begun: Instant::now(),
            interval: Duration::from_millis(1),
            jobs: 2,
            next: AtomicUsize::new(1),
            payload_bytes: 40,
            took,
        };
        let payload = pace.next().await.expect("one is left");
        let text = String::from_utf8(payload).expect("it is text");
        assert_eq!(text.len(), 40);
        let sent: u64 = text
            .trim_matches('"')
            .trim()
            .parse()
            .expect("it is a number");
        assert!(sent >= 1_000_000, "not before it is due");
        pace.started(&text);
        assert!(times.try_recv().is_ok());
        assert_eq!(pace.next().await, None);
    }
}
