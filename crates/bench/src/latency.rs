//! The measurement of the time from an enqueue to the start of the job, with an idle worker.
//!
//! Jobs are due at a steady rate whether or not earlier ones have started, each over an idle connection. The time of a
//! job counts from the moment it was due, even if it had to wait for a connection. The payload contains that moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::driver::{Tasks, Work};
use crate::{Driver, Error, Load};

/// Longest time until a job starts; a later one is a failure.
const START_WITHIN: Duration = Duration::from_secs(20);

/// The measured times, from before the enqueue was sent until the worker has the job.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Number of jobs that were measured.
    pub samples: usize,
    /// The median time from enqueue to start.
    pub p50: Duration,
    /// The 99th percentile of the time from enqueue to start.
    pub p99: Duration,
    /// The longest time from enqueue to start.
    pub max: Duration,
}

/// The times at which jobs are due, and the measured time of each.
pub struct Pace {
    begun: Instant,
    interval: Duration,
    jobs: usize,
    next: AtomicUsize,
    payload_bytes: usize,
    started: AtomicUsize,
    took: mpsc::UnboundedSender<Duration>,
}

impl Pace {
    /// Waits until the next job is due; returns its payload, or `None` if all jobs were sent.
    pub(crate) async fn next(&self) -> Option<Vec<u8>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.jobs {
            return None;
        }
        let due = self.begun + self.interval * u32::try_from(number).unwrap_or(u32::MAX);
        let is_early = Instant::now() < due;
        sleep_until(due).await;
        // The imprecision of the timer does not count against the server; the wait for a connection does.
        let sent = if is_early { Instant::now() } else { due };
        let nanos = sent.duration_since(self.begun).as_nanos();
        let mut text = format!("\"{nanos:020}").into_bytes();
        text.resize(self.payload_bytes.max(text.len() + 1) - 1, b' ');
        text.push(b'"');
        Some(text)
    }

    /// Records the start of the job with this payload.
    pub(crate) fn started(&self, payload: &[u8]) {
        let now = self.begun.elapsed();
        self.started.fetch_add(1, Ordering::Relaxed);
        let payload = String::from_utf8_lossy(payload);
        let sent = payload.trim_matches('"').trim().parse().unwrap_or(0);
        // The receiver is gone once all jobs have started.
        let _ = self
            .took
            .send(now.saturating_sub(Duration::from_nanos(sent)));
    }

    /// Whether all jobs have started.
    pub(crate) fn is_over(&self) -> bool {
        self.started.load(Ordering::Relaxed) >= self.jobs
    }
}

/// Measures the latency at a rate of jobs per second.
pub async fn measure(
    driver: &dyn Driver,
    queue: String,
    a_second: u32,
    payload_bytes: usize,
    time: Duration,
) -> Result<Latency, Error> {
    let load = Load::new(queue, 1, payload_bytes, 0);
    let interval = Duration::from_secs(1) / a_second;
    let jobs = usize::try_from(time.as_nanos() / interval.as_nanos().max(1)).unwrap_or(1);
    let (took, mut times) = mpsc::unbounded_channel();
    let pace = Arc::new(Pace {
        // Connections are opened before the first job is due.
        begun: Instant::now() + Duration::from_millis(500),
        interval,
        jobs: jobs.max(10),
        next: AtomicUsize::new(0),
        payload_bytes,
        started: AtomicUsize::new(0),
        took,
    });
    let mut tasks = Tasks::default();
    let work = Work::Pace(Arc::clone(&pace));
    let connection = driver.connect(work, 0, &load).await?;
    tasks.start(driver, connection.workers);
    tasks.start(driver, connection.producers);
    let mut samples = Vec::with_capacity(pace.jobs);
    while samples.len() < pace.jobs {
        match timeout(START_WITHIN, times.recv()).await {
            Ok(Some(took)) => samples.push(took),
            Ok(None) | Err(_) => {
                tasks.check()?;
                return Err(Error::failed("a job did not start within 20 s"));
            }
        }
    }
    tasks.stop().await;
    Ok(summarize(samples))
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
            started: AtomicUsize::new(0),
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
        pace.started(text.as_bytes());
        assert!(times.try_recv().is_ok());
        assert_eq!(pace.next().await, None);
    }
}
