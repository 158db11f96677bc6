//! The time from an enqueue to the start of the job, or to its acknowledgement if nobody takes jobs, at a steady rate.
//!
//! Jobs come whether or not those before are done; a job that had to wait for its connection counts from the moment
//! it was due. The payload carries that moment.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Count, Span};
use crate::pace::{Pace, Paced, Until};
use crate::supply::Supply;
use crate::tasks::Tasks;
use crate::{Error, Load, Measured, Peer, Role, Shape};

/// A job that is not done after so long never will be.
const DONE_WITHIN: Duration = Duration::from_secs(20);

/// Connections are made before the first job is due.
const BEGIN_AFTER: Duration = Duration::from_millis(500);

/// Median, 99th percentile and maximum of measured times; of this load, from before the enqueue was sent until the
/// consumer has the job, or until it is acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Number of jobs that were measured.
    pub samples: usize,
    /// The median of the times.
    pub p50: Duration,
    /// The 99th percentile of the times; of up to 100 times, the longest.
    pub p99: Duration,
    /// The longest of the times.
    pub max: Duration,
}

impl Latency {
    /// Returns the latency that these times show; `None` without any.
    pub fn of(mut samples: Vec<Duration>) -> Option<Self> {
        samples.sort();
        let last = samples.len().checked_sub(1)?;
        let at = |percent: usize| samples[(samples.len() * percent / 100).min(last)];
        Some(Self {
            samples: samples.len(),
            p50: at(50),
            p99: at(99),
            max: at(100),
        })
    }
}

/// The latency at so many jobs a second from all producers together, and what the server used for each job.
pub async fn measure(
    peer: &dyn Peer,
    load: &Arc<Load>,
    shape: &Shape,
    a_second: u32,
    payload_bytes: usize,
    time: Duration,
) -> Result<(Measured, Latency), Error> {
    let interval = Duration::from_secs(1) / a_second;
    let jobs = usize::try_from(time.as_nanos() / interval.as_nanos().max(1)).unwrap_or(1);
    let (took, times) = mpsc::unbounded_channel();
    let (until, count): (_, Count) = if shape.consumers == 0 {
        (Until::Acknowledged, Load::enqueued)
    } else {
        (Until::Started, Load::completed)
    };
    let pace = Pace::begin(
        BEGIN_AFTER,
        interval,
        jobs.max(10),
        payload_bytes,
        until,
        took,
    );
    let (mut producers, mut consumers) = (Tasks::default(), Tasks::default());
    // Consumers that take several at once are those of a flow, which is seldom idle.
    let role = if shape.take == 1 {
        Role::Idle
    } else {
        Role::Consume
    };
    consumers
        .consume(peer, load, role, shape.consumers, Some(&pace))
        .await?;
    let span = Span::begin(peer, load, count).await;
    for messages in &shape.producers {
        let supply = Supply::Paced(Paced::new(&pace));
        producers.produce(peer, load, *messages, supply).await?;
    }
    let samples = samples(times, jobs.max(10), [&mut producers, &mut consumers]).await?;
    // Counted from the first job, not from the making of the connections.
    let took = pace.elapsed();
    let mut measured = span.end(peer, load, count).await?;
    measured.per_second = crate::rate(u64::try_from(samples.len()).unwrap_or(0), took);
    producers.finish().await?;
    consumers.check()?;
    load.stop();
    consumers.stop().await;
    let latency = Latency::of(samples).ok_or_else(|| Error::failed("no job was measured"))?;
    Ok((measured, latency))
}

/// How long each job took, once all are done.
async fn samples(
    mut times: mpsc::UnboundedReceiver<Duration>,
    jobs: usize,
    tasks: [&mut Tasks; 2],
) -> Result<Vec<Duration>, Error> {
    let mut samples = Vec::with_capacity(jobs);
    while samples.len() < jobs {
        match timeout(DONE_WITHIN, times.recv()).await {
            Ok(Some(took)) => samples.push(took),
            Ok(None) | Err(_) => {
                for tasks in tasks {
                    tasks.check()?;
                }
                return Err(Error::failed("a job was not done within 20 s"));
            }
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_the_sorted_samples() {
        let samples = (1..=100).rev().map(Duration::from_millis).collect();
        let latency = Latency::of(samples).expect("there are samples");
        assert_eq!(latency.p50, Duration::from_millis(51));
        assert_eq!(latency.p99, Duration::from_millis(100));
        assert_eq!(latency.max, Duration::from_millis(100));
        let one = Latency::of(vec![Duration::ZERO]);
        assert_eq!(one.map(|one| one.p99), Some(Duration::ZERO));
        assert!(Latency::of(Vec::new()).is_none());
    }
}
