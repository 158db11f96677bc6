//! The loads, the same for everyone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::report::Report;
use super::{BATCH, PAYLOAD_BYTES};

/// A queue server.
pub(super) trait Peer: Sync {
    fn connect(&self) -> Result<Box<dyn Link>>;
}

/// A connection to it.
pub(super) trait Link: Send {
    /// Enqueues; returns when all are durable.
    fn put(&mut self, payloads: &[Vec<u8>]) -> Result<()>;
    /// Takes up to so many, without waiting.
    fn take(&mut self, jobs: usize) -> Result<Vec<Vec<u8>>>;
    /// Takes one, waiting up to a second if the server can.
    fn take_one_waiting(&mut self) -> Result<Option<Vec<u8>>>;
    /// Finishes what was taken; returns when that is durable.
    fn finish(&mut self) -> Result<()>;
    /// Whether the server can make a consumer wait.
    fn waits(&self) -> bool;
}

/// The row that is also measured through gRPC.
pub(super) const ENQUEUE: &str = "enqueue, batches of 100";
/// How long each load runs.
const FOR: Duration = Duration::from_secs(5);
/// Connections of the loads that ask for the best.
const CONNECTIONS: usize = 8;
/// Jobs that are enqueued before taking is measured.
const PREFILLED: usize = 200_000;
/// Jobs that wait while a deep queue is measured.
const DEEP: usize = 1_000_000;
/// Jobs a second while the latency is measured.
const LATENCY_RATE: u32 = 1_000;
/// Jobs whose latency is measured.
const LATENCY_JOBS: usize = 5_000;

/// Measures everything that is measured of every peer.
pub(super) fn measure(name: &str, peer: &dyn Peer, report: &mut Report) -> Result<()> {
    println!("measuring {name}");
    let context = || format!("while measuring {name}");
    report.add(
        "enqueue, batches of 100",
        name,
        "jobs/s",
        enqueue(peer, FOR).with_context(context)?,
    );
    drain(peer).with_context(context)?;
    report.add(
        "take + finish, batches of 100",
        name,
        "jobs/s",
        take_and_finish(peer, PREFILLED).with_context(context)?,
    );
    report.add(
        "2 producers, 4 consumers",
        name,
        "jobs/s",
        mix(peer, FOR).with_context(context)?,
    );
    drain(peer).with_context(context)?;
    if let Some((median, late)) = latency(peer).with_context(context)? {
        report.add("enqueue to start, p50", name, "us", median);
        report.add("enqueue to start, p99", name, "us", late);
    }
    Ok(())
}

/// Measures the steady mix above a queue of a million jobs, as a share of the same on an empty one.
pub(super) fn measure_deep(name: &str, peer: &dyn Peer, report: &mut Report) -> Result<()> {
    println!("measuring {name} with {DEEP} jobs waiting");
    let empty = mix(peer, FOR)?;
    drain(peer)?;
    put_all(peer, DEEP)?;
    let deep = mix(peer, FOR)?;
    report.add(
        "2 producers, 4 consumers, 1 M waiting",
        name,
        "jobs/s",
        deep,
    );
    report.add(
        "the same as a share of an empty queue",
        name,
        "x",
        deep / empty,
    );
    drain(peer)
}

/// A payload of the usual size that begins with its number and the moment it was made.
fn payload(number: usize, begun: Instant) -> Vec<u8> {
    let mut text = format!("{number:012} {:020} ", begun.elapsed().as_nanos()).into_bytes();
    text.resize(PAYLOAD_BYTES, b'x');
    text
}

fn batch(numbers: &AtomicUsize, begun: Instant) -> Vec<Vec<u8>> {
    let first = numbers.fetch_add(BATCH, Ordering::Relaxed);
    (first..first + BATCH)
        .map(|number| payload(number, begun))
        .collect()
}

/// Runs `work` on so many connections until the time is over; returns the sum of what they did, per second.
fn together(
    peer: &dyn Peer,
    connections: usize,
    time: Duration,
    work: impl Fn(usize, &mut dyn Link) -> Result<usize> + Sync,
) -> Result<f64> {
    let is_over = AtomicBool::new(false);
    let done = AtomicUsize::new(0);
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..connections)
            .map(|index| {
                let (is_over, done, work) = (&is_over, &done, &work);
                scope.spawn(move || -> Result<()> {
                    let mut link = peer.connect()?;
                    while !is_over.load(Ordering::Relaxed) {
                        done.fetch_add(work(index, link.as_mut())?, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a measuring thread does not panic")?;
        }
        Ok(())
    })?;
    Ok(count(done.into_inner()) / begun.elapsed().as_secs_f64())
}

fn enqueue(peer: &dyn Peer, time: Duration) -> Result<f64> {
    let numbers = AtomicUsize::new(0);
    let begun = Instant::now();
    together(peer, CONNECTIONS, time, |_, link| {
        link.put(&batch(&numbers, begun))?;
        Ok(BATCH)
    })
}

fn put_all(peer: &dyn Peer, jobs: usize) -> Result<()> {
    let numbers = AtomicUsize::new(0);
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let numbers = &numbers;
                scope.spawn(move || -> Result<()> {
                    let mut link = peer.connect()?;
                    while numbers.load(Ordering::Relaxed) < jobs {
                        link.put(&batch(numbers, begun))?;
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("a filling thread does not panic")?;
        }
        Ok(())
    })
}

/// Takes and finishes until nothing is left; returns how many a second.
fn empty(peer: &dyn Peer) -> Result<f64> {
    let done = AtomicUsize::new(0);
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let done = &done;
                scope.spawn(move || -> Result<()> {
                    let mut link = peer.connect()?;
                    loop {
                        let taken = link.take(BATCH)?.len();
                        if taken == 0 {
                            return Ok(());
                        }
                        link.finish()?;
                        done.fetch_add(taken, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("a draining thread does not panic")?;
        }
        Ok(())
    })?;
    Ok(count(done.into_inner()) / begun.elapsed().as_secs_f64())
}

fn drain(peer: &dyn Peer) -> Result<()> {
    empty(peer).map(drop)
}

fn take_and_finish(peer: &dyn Peer, jobs: usize) -> Result<f64> {
    put_all(peer, jobs)?;
    empty(peer)
}

/// Two producers and four consumers; counts finished jobs.
fn mix(peer: &dyn Peer, time: Duration) -> Result<f64> {
    let numbers = AtomicUsize::new(0);
    let finished = AtomicUsize::new(0);
    let begun = Instant::now();
    together(peer, 6, time, |index, link| {
        if index < 2 {
            // Producers stay at most a little ahead, so that this measures the flow and not a growing queue.
            if numbers.load(Ordering::Relaxed) > finished.load(Ordering::Relaxed) + 100 * BATCH {
                thread::sleep(Duration::from_micros(200));
                return Ok(0);
            }
            link.put(&batch(&numbers, begun))?;
            return Ok(0);
        }
        let taken = link.take(BATCH)?.len();
        if taken == 0 {
            thread::sleep(Duration::from_micros(200));
            return Ok(0);
        }
        link.finish()?;
        finished.fetch_add(taken, Ordering::Relaxed);
        Ok(taken)
    })
}

/// The time from before a job is sent until an idle consumer has it, in microseconds: median and 99th percentile.
/// Nothing for a server that cannot make a consumer wait.
fn latency(peer: &dyn Peer) -> Result<Option<(f64, f64)>> {
    if !peer.connect()?.waits() {
        return Ok(None);
    }
    let begun = Instant::now();
    let interval = Duration::from_secs(1) / LATENCY_RATE;
    let mut times = thread::scope(|scope| -> Result<Vec<f64>> {
        let producer = scope.spawn(|| -> Result<()> {
            let mut link = peer.connect()?;
            for number in 0..LATENCY_JOBS {
                let due = interval * u32::try_from(number)?;
                thread::sleep(due.saturating_sub(begun.elapsed()));
                link.put(&[payload(number, begun)])?;
            }
            Ok(())
        });
        let mut consumer = peer.connect()?;
        let mut times = Vec::new();
        while times.len() < LATENCY_JOBS {
            let Some(payload) = consumer.take_one_waiting()? else {
                continue;
            };
            let now = begun.elapsed();
            let text = String::from_utf8_lossy(&payload);
            let sent: u64 = text
                .split(' ')
                .nth(1)
                .context("a payload of somebody else's")?
                .parse()?;
            times.push(now.saturating_sub(Duration::from_nanos(sent)).as_secs_f64() * 1e6);
            consumer.finish()?;
        }
        producer.join().expect("the producer does not panic")?;
        Ok(times)
    })?;
    times.sort_by(f64::total_cmp);
    Ok(Some((
        times[times.len() / 2],
        times[times.len() * 99 / 100],
    )))
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}
