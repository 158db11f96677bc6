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

/// The rows.
pub(super) const ENQUEUE: &str = "enqueue, batches of 100";
pub(super) const TAKE: &str = "take + finish, batches of 100";
pub(super) const MIX: &str = "2 producers, 4 consumers";
pub(super) const DEEP: &str = "the same, 1 M waiting";
pub(super) const DEPTH: &str = "its share of an empty queue";
pub(super) const P50: &str = "enqueue to start at 1,000/s, p50";
pub(super) const P99: &str = "enqueue to start at 1,000/s, p99";
/// How long each load runs.
const FOR: Duration = Duration::from_secs(5);
/// Connections of the loads that ask for the best.
const CONNECTIONS: usize = 8;
/// Jobs that are enqueued before taking is measured.
const PREFILLED: usize = 200_000;
/// Filling a queue ends after so long.
const FILL_MAX: Duration = Duration::from_secs(60);
/// Jobs that wait while a deep queue is measured.
const DEEP_JOBS: usize = 1_000_000;
/// Jobs a second while the latency is measured.
const LATENCY_RATE: u32 = 1_000;
/// Jobs whose latency is measured.
const LATENCY_JOBS: usize = 5_000;
/// Connections that send meanwhile, and as many that take.
const LATENCY_CONNECTIONS: usize = 16;

/// Measures everything that is measured of every peer.
pub(super) fn measure(name: &str, peer: &dyn Peer, report: &mut Report) -> Result<()> {
    println!("measuring {name}");
    let context = || format!("while measuring {name}");
    report.add(
        ENQUEUE,
        name,
        "jobs/s",
        enqueue(peer, FOR).with_context(context)?,
    );
    drain(peer).with_context(context)?;
    report.add(
        TAKE,
        name,
        "jobs/s",
        take_and_finish(peer, PREFILLED).with_context(context)?,
    );
    report.add(MIX, name, "jobs/s", mix(peer, FOR).with_context(context)?);
    drain(peer).with_context(context)?;
    if let Some((median, late)) = latency(peer).with_context(context)? {
        report.add(P50, name, "us", median);
        report.add(P99, name, "us", late);
    }
    Ok(())
}

/// Measures the steady mix above a queue of a million jobs, as a share of the same on an empty one. They are left there:
/// this is the last that is measured of a server.
pub(super) fn measure_deep(name: &str, peer: &dyn Peer, report: &mut Report) -> Result<()> {
    println!("measuring {name} with {DEEP_JOBS} jobs waiting");
    let empty = mix(peer, FOR)?;
    drain(peer)?;
    put_all(peer, DEEP_JOBS)?;
    let deep = mix(peer, FOR)?;
    report.add(DEEP, name, "jobs/s", deep);
    report.add(DEPTH, name, "x", deep / empty);
    Ok(())
}

/// A payload of the usual size that begins with its number and the moment it was made.
fn payload(number: usize, begun: Instant) -> Vec<u8> {
    payload_of(number, begun.elapsed())
}

fn payload_of(number: usize, moment: Duration) -> Vec<u8> {
    let mut text = format!("{number:012} {:020} ", moment.as_nanos()).into_bytes();
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

/// Fills a queue with so many jobs, or with what a slow server takes in the time there is.
fn put_all(peer: &dyn Peer, jobs: usize) -> Result<()> {
    let numbers = AtomicUsize::new(0);
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let numbers = &numbers;
                scope.spawn(move || -> Result<()> {
                    let mut link = peer.connect()?;
                    while numbers.load(Ordering::Relaxed) < jobs && begun.elapsed() < FILL_MAX {
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
///
/// Jobs come at their rate whether or not those before have started: there are connections enough that one is idle
/// when a job is due, on either side. A job that had to wait for one counts from when it was due.
fn latency(peer: &dyn Peer) -> Result<Option<(f64, f64)>> {
    if !peer.connect()?.waits() {
        return Ok(None);
    }
    // Connections are made before the first job is due.
    let begun = Instant::now() + Duration::from_millis(300);
    let (next, started) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut times = thread::scope(|scope| -> Result<Vec<f64>> {
        let mut consumers = Vec::new();
        for _ in 0..LATENCY_CONNECTIONS {
            scope.spawn(|| send_at_rate(peer, begun, &next).expect("jobs can be sent"));
            consumers.push(scope.spawn(|| starts(peer, begun, &started)));
        }
        let mut times = Vec::new();
        for consumer in consumers {
            times.extend(consumer.join().expect("a consumer does not panic")?);
        }
        Ok(times)
    })?;
    times.sort_by(f64::total_cmp);
    Ok(Some((
        times[times.len() / 2],
        times[times.len() * 99 / 100],
    )))
}

/// Sends those jobs that are this connection's.
fn send_at_rate(peer: &dyn Peer, begun: Instant, next: &AtomicUsize) -> Result<()> {
    let mut link = peer.connect()?;
    let interval = Duration::from_secs(1) / LATENCY_RATE;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= LATENCY_JOBS {
            return Ok(());
        }
        let due = begun + interval * u32::try_from(number)?;
        let early = due.saturating_duration_since(Instant::now());
        // The sleep ends a little late, which is none of the server's business; being late for want of a connection is.
        let sent = if early.is_zero() {
            due
        } else {
            thread::sleep(early);
            Instant::now()
        };
        link.put(&[payload_of(number, sent.duration_since(begun))])?;
    }
}

/// Takes jobs until all have started; how long each of this connection's took.
fn starts(peer: &dyn Peer, begun: Instant, started: &AtomicUsize) -> Result<Vec<f64>> {
    let mut link = peer.connect()?;
    let mut times = Vec::new();
    while started.load(Ordering::Relaxed) < LATENCY_JOBS {
        let Some(payload) = link.take_one_waiting()? else {
            continue;
        };
        let now = begun.elapsed();
        started.fetch_add(1, Ordering::Relaxed);
        let text = String::from_utf8_lossy(&payload);
        let sent: u64 = text
            .split(' ')
            .nth(1)
            .context("a payload of somebody else's")?
            .parse()?;
        times.push(now.saturating_sub(Duration::from_nanos(sent)).as_secs_f64() * 1e6);
        link.finish()?;
    }
    Ok(times)
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}
