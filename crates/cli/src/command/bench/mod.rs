//! `ganger bench`: how fast a server is, beside a bare log on the same disk in the same run.

mod enqueue;
mod latency;
mod lives;
mod log;
mod report;
mod target;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::context::{Context, remark};
use crate::document::span::read_span;
use crate::exit::{Exit, Failure, Outcome};
use crate::show::bytes;

use report::{LifeRow, Report};
use target::Target;

/// Connections that enqueue at once in the measurement of enqueueing alone.
const ENQUEUE_CONNECTIONS: usize = 16;

/// Jobs of one enqueue in the measurement of enqueueing alone.
const ENQUEUE_BATCH: usize = 100;

/// Measures full lives (enqueue, lease, complete) per second, enqueueing alone, and the time from an
/// enqueue to the start of the job.
///
/// By itself it starts a server with a fresh store in --dir and removes both in the end; with --attach it
/// loads the server named by --server. Everything is flushed to disk before it is acknowledged, and
/// so is the bare log beside it: an append-only file, flushed after each batch of records,
/// three records a life.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Connections at once, several separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    connections: Vec<usize>,

    /// Jobs in one enqueue, delivery and report, several separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16,256")]
    batches: Vec<usize>,

    /// How long each measurement takes.
    #[arg(long, value_name = "DURATION", value_parser = read_span, default_value = "3s")]
    time: Duration,

    /// Bytes of each job's payload.
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    payload: usize,

    /// Where to put the store and the bare log: the disk to measure.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Load the server named by --server instead of one of our own.
    #[arg(long)]
    attach: bool,

    /// With --attach: its process, to measure its CPU time.
    #[arg(long, value_name = "PID", requires = "attach")]
    server_pid: Option<u32>,
}

pub(crate) async fn run(context: &Context, args: BenchArgs) -> Outcome {
    check(&args)?;
    let target = Target::start(context, &args).await?;
    let mut report = Report::new(&args, &target);
    if !context.is_json() {
        context.line(report.heading())?;
    }
    for &batch in &args.batches {
        let bare = log::measure(target.dir(), batch, args.payload, args.time)?;
        report.bare.push((batch, bare));
        for &connections in &args.connections {
            remark(format!(
                "measuring lives: {connections} connections, batches of {batch}"
            ));
            let cpu = target.cpu();
            let measured =
                lives::measure(&target, connections, batch, args.payload, args.time).await?;
            let cpu_seconds = target.cpu_since(cpu);
            report.lives.push(LifeRow {
                connections,
                batch,
                measured,
                bare,
                cpu_seconds,
            });
        }
    }
    remark("measuring enqueueing alone");
    let cpu = target.cpu();
    let enqueued = enqueue::measure(
        &target,
        ENQUEUE_CONNECTIONS,
        ENQUEUE_BATCH,
        args.payload,
        args.time,
    )
    .await?;
    report.enqueue = Some((enqueued, target.cpu_since(cpu)));
    remark("measuring the time from enqueue to start");
    report.latency = Some(latency::measure(&target, args.payload, args.time).await?);
    if context.is_json() {
        context.json(&report.json())?;
    } else {
        context.line(report.text())?;
    }
    Ok(Exit::Done)
}

fn check(args: &BenchArgs) -> Result<(), Failure> {
    if args
        .connections
        .iter()
        .chain(&args.batches)
        .any(|count| *count == 0)
    {
        return Err(Failure::usage(
            "--connections and --batches must be at least 1",
        ));
    }
    if args.batches.iter().any(|count| *count > 4_096) {
        return Err(Failure::usage(
            "--batches must be at most 4096, the most that one message carries",
        ));
    }
    if args.payload > 1 << 20 {
        let given = bytes(u64::try_from(args.payload).unwrap_or(u64::MAX));
        return Err(Failure::usage(format!(
            "--payload {given}: the server takes at most 1 MiB"
        )));
    }
    if args.time < Duration::from_millis(100) {
        return Err(Failure::usage("--time must be at least 100ms"));
    }
    Ok(())
}

/// A payload of so many bytes that is a JSON string if it can be.
fn payload(size: usize) -> ganger_client::Bytes {
    if size < 2 {
        return vec![b'7'; size].into();
    }
    format!("\"{}\"", "x".repeat(size - 2)).into()
}

/// Events in a time as a rate.
fn rate(count: u64, time: Duration) -> f64 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    f64::from(count) / time.as_secs_f64()
}
