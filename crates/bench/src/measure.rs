//! The measurements, the same for every system.

pub mod enqueue;
pub mod flow;
pub mod latency;
pub mod lives;
pub mod take;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::tasks::Tasks;
use crate::{Error, Load, Measured, Method, Named, Peer, Shape, Used, rate};
use latency::Latency;

/// Time before a measurement begins, in which all connections come to their full rate.
const WARM_UP: Duration = Duration::from_millis(300);

/// Jobs that may be enqueued and not completed while producers and consumers work at once.
pub const AHEAD: usize = 10_000;

/// What one measurement of a load gave.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The name of the load; those of [`Named`], and `D empty` for the first part of `D`.
    pub load: &'static str,
    /// The rate, and what the server used for each job.
    pub measured: Measured,
    /// From enqueue to start; of paced loads only.
    pub latency: Option<Latency>,
}

/// The first part of `D`: the flow on an empty queue.
pub const DEEP_EMPTY: &str = "D empty";

/// Measures a load of a peer. `shape` is that of the load, or what the peer can do of it.
pub async fn named(
    peer: &dyn Peer,
    named: Named,
    shape: &Shape,
    queue: &str,
    payload_bytes: usize,
    time: Duration,
) -> Result<Vec<Outcome>, Error> {
    let load = |name: &str, ahead| {
        let queue = format!("{queue}{name}");
        Load::new(queue, payload_bytes, shape.take, ahead)
    };
    let outcome = |load, measured| Outcome {
        load,
        measured,
        latency: None,
    };
    let name = named.name();
    match named.method() {
        Method::Enqueue => {
            let measured = enqueue::measure(peer, &load("", None), shape, time).await?;
            Ok(vec![outcome(name, measured)])
        }
        Method::Take(jobs) => {
            let measured = take::measure(peer, &load("", None), shape, jobs, time).await?;
            Ok(vec![outcome(name, measured)])
        }
        Method::Flow => {
            let measured = flow::measure(peer, &load("", Some(AHEAD)), shape, time).await?;
            Ok(vec![outcome(name, measured)])
        }
        Method::Deep => {
            let empty = flow::measure(peer, &load("", Some(AHEAD)), shape, time).await?;
            let deep = flow::deep(peer, &load("-deep", Some(AHEAD)), shape, time).await?;
            Ok(vec![outcome(DEEP_EMPTY, empty), outcome(name, deep)])
        }
        Method::Paced(a_second) => {
            let load = load("", None);
            let (measured, latency) =
                latency::measure(peer, &load, shape, a_second, payload_bytes, time).await?;
            Ok(vec![Outcome {
                load: name,
                measured,
                latency: Some(latency),
            }])
        }
    }
}

/// The count of a load's jobs that a measurement is about.
type Count = fn(&Load) -> u64;

/// The time and the use of the server between two moments of a load.
struct Span {
    begun: Instant,
    count: u64,
    used: Used,
}

impl Span {
    async fn begin(peer: &dyn Peer, load: &Load, count: Count) -> Self {
        let used = peer.used().await;
        Self {
            used,
            count: count(load),
            begun: Instant::now(),
        }
    }

    /// The rate since the beginning, and the use for one job.
    async fn end(&self, peer: &dyn Peer, load: &Load, count: Count) -> Result<Measured, Error> {
        let (took, jobs) = (self.begun.elapsed(), count(load) - self.count);
        let used = peer.used().await.since(self.used);
        if jobs == 0 {
            return Err(Error::failed("no job was done in the time given"));
        }
        Ok(Measured {
            per_second: rate(jobs, took),
            used: used.per_job(jobs),
        })
    }
}

/// Measures while these run, then ends them. The consumers, if there are any, complete what is left in the end.
async fn running(
    peer: &dyn Peer,
    load: &Arc<Load>,
    [mut producers, mut consumers]: [Tasks; 2],
    count: Count,
    time: Duration,
) -> Result<Measured, Error> {
    sleep(WARM_UP.min(time)).await;
    let span = Span::begin(peer, load, count).await;
    sleep(time).await;
    let measured = span.end(peer, load, count).await;
    load.end();
    // A failed task explains a missing rate better than the rate does.
    consumers.check()?;
    producers.finish().await?;
    if !consumers.is_empty() {
        load.drain().await;
    }
    consumers.check()?;
    load.stop();
    consumers.stop().await;
    measured
}
