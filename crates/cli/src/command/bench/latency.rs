//! The time from an enqueue to the start of the job, with an idle worker.

use std::time::Duration;

use ganger_client::{NewJob, TakeFrom, TakeMode, WorkEvent, WorkOptions};
use tokio::time::{Instant, timeout};

use crate::command::bench::payload;
use crate::command::bench::target::Target;
use crate::exit::Failure;

/// A job that has not started after so long never will.
const START_WITHIN: Duration = Duration::from_secs(10);

/// What was measured: from before the enqueue was sent until the worker has the job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) samples: usize,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

/// One job at a time.
pub(super) async fn measure(
    target: &Target,
    payload_bytes: usize,
    time: Duration,
) -> Result<Latency, Failure> {
    let queue = format!("bench-latency-{}", std::process::id());
    let producer = target.client()?;
    let mut stream = target.client()?.work(WorkOptions {
        worker: "bench-idle".to_owned(),
        queues: vec![TakeFrom::new(&queue)],
        mode: TakeMode::Ordered,
        lease_for: None,
        credits: 1,
    });
    let reporter = stream.reporter();
    let job = NewJob::new("bench")
        .queue(&queue)
        .payload(payload(payload_bytes));
    let mut samples = Vec::new();
    let until = Instant::now() + time;
    while Instant::now() < until || samples.len() < 10 {
        let sent = Instant::now();
        let enqueue = producer.enqueue(job.clone());
        let deliver = async {
            loop {
                match timeout(START_WITHIN, stream.next()).await {
                    Ok(Some(WorkEvent::Jobs(jobs))) => return Ok((sent.elapsed(), jobs)),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => {
                        return Err(Failure::failed("a job did not start within 10 s"));
                    }
                }
            }
        };
        let (enqueued, delivered) = tokio::join!(enqueue, deliver);
        enqueued?;
        let (took, jobs) = delivered?;
        samples.push(took);
        for job in jobs {
            reporter.complete(&job.held, None).await?;
            reporter.grant(1);
        }
    }
    reporter.close();
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
}
