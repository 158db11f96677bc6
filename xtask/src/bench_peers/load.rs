//! The loads of `ganger bench`, over the protocols of other queue servers.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ganger_bench::{
    BATCH, Blocking, BlockingPeer, CONNECTIONS, Calls, Driver, Load, enqueue, flow, latency,
};

use super::report::Report;

// Names of the rows of the report.
pub(super) const ENQUEUE: &str = "enqueue, batches of 100";
pub(super) const TAKE: &str = "take + finish, batches of 100";
pub(super) const MIX: &str = "2 producers, 4 consumers";
pub(super) const DEEP: &str = "the same, 1 M waiting";
pub(super) const DEPTH: &str = "its share of an empty queue";
pub(super) const P50: &str = "enqueue to start at 1,000/s, p50";
pub(super) const P99: &str = "enqueue to start at 1,000/s, p99";

/// Duration of each load.
const FOR: Duration = Duration::from_secs(5);
/// Jobs per second while the latency is measured.
const LATENCY_RATE: u32 = 1_000;
/// Bytes of each job's payload.
const PAYLOAD_BYTES: usize = 200;

/// Runs all loads against a peer, and adds the results to the report.
pub(super) async fn measure(
    name: &str,
    peer: impl BlockingPeer,
    report: &mut Report,
) -> Result<()> {
    println!("measuring {name}");
    let waits = peer.connect()?.waits();
    let measured = measure_all(name, &Calls(Blocking(peer)), waits, report).await;
    measured.with_context(|| format!("while measuring {name}"))
}

async fn measure_all(
    name: &str,
    driver: &dyn Driver,
    waits: bool,
    report: &mut Report,
) -> Result<()> {
    // A peer has a single queue, which each load leaves empty.
    let load = Load::new(name.to_owned(), BATCH, PAYLOAD_BYTES, 0);
    let measured = enqueue::measure(driver, &load, CONNECTIONS, FOR).await?;
    report.add(ENQUEUE, name, "jobs/s", measured.per_second);
    flow::empty(driver, &load).await?;
    let load = Load::new(name.to_owned(), BATCH, PAYLOAD_BYTES, 0);
    let measured = flow::take(driver, &load).await?;
    report.add(TAKE, name, "jobs/s", measured.per_second);
    let load = flow::load(name.to_owned(), PAYLOAD_BYTES);
    let measured = flow::mix(driver, &load, FOR).await?;
    report.add(MIX, name, "jobs/s", measured.per_second);
    // A consumer that must poll would measure its own pauses.
    if waits {
        let queue = name.to_owned();
        let measured = latency::measure(driver, queue, LATENCY_RATE, PAYLOAD_BYTES, FOR).await?;
        report.add(P50, name, "us", measured.p50.as_secs_f64() * 1e6);
        report.add(P99, name, "us", measured.p99.as_secs_f64() * 1e6);
    }
    Ok(())
}
