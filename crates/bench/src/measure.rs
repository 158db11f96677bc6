//! The measurements, the same for every system.

pub mod enqueue;
pub mod flow;
pub mod latency;
pub mod lives;
pub mod take;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::load::{LOOK_EVERY, STALLED_AFTER};
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
    /// From enqueue to start, or to acknowledgement of `ACK`; of paced loads only.
    pub latency: Option<Latency>,
}

/// The first part of `D`: the flow on an empty queue.
pub const DEEP_EMPTY: &str = "D empty";

/// How a load is measured.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The queue, which no other load uses.
    pub queue: String,
    /// Bytes of each job's payload.
    pub payload_bytes: usize,
    /// How long the measurement takes.
    pub time: Duration,
    /// Jobs that wait in a deep queue.
    pub waiting: u64,
}

/// Measures a load of a peer. `shape` is that of the load, or what the peer can do of it.
pub async fn named(
    peer: &dyn Peer,
    named: Named,
    shape: &Shape,
    setting: &Setting,
) -> Result<Vec<Outcome>, Error> {
    let (payload_bytes, time) = (setting.payload_bytes, setting.time);
    let load = |name: &str, ahead| {
        let queue = format!("{}{name}", setting.queue);
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
        Method::Take(a_second) => {
            let jobs = take::jobs(a_second, time);
            let measured = take::measure(peer, &load("", None), shape, jobs, time).await?;
            Ok(vec![outcome(name, measured)])
        }
        Method::Flow => {
            let measured = flow::measure(peer, &load("", Some(AHEAD)), shape, time).await?;
            Ok(vec![outcome(name, measured)])
        }
        Method::Deep => {
            let empty = flow::measure(peer, &load("", Some(AHEAD)), shape, time).await?;
            let load = load("-deep", Some(AHEAD));
            let deep = flow::deep(peer, &load, shape, setting.waiting, time).await?;
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

    /// Waits until the first job is done, however slow the server is.
    async fn until_first(&self, load: &Load, count: Count) {
        while count(load) == self.count && self.begun.elapsed() < STALLED_AFTER {
            sleep(LOOK_EVERY).await;
        }
    }

    /// The rate since the beginning, and the use for one job.
    async fn end(&self, peer: &dyn Peer, load: &Load, count: Count) -> Result<Measured, Error> {
        let (took, jobs) = (self.begun.elapsed(), count(load) - self.count);
        let used = peer.used().await.since(self.used);
        if jobs == 0 {
            return Err(Error::failed(format!(
                "no job was done in {STALLED_AFTER:?}"
            )));
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
    span.until_first(load, count).await;
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
