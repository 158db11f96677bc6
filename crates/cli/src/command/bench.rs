//! `ganger bench`: how fast a server is, beside a bare log on the same disk in the same run.

mod caller;
mod enqueue;
mod flow;
mod http;
mod latency;
mod lives;
mod load;
mod log;
mod report;
mod servers;
mod shards;
mod target;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::context::{Context, remark};
use crate::document::span::read_span;
use crate::exit::{Exit, Failure, Outcome};
use crate::show::bytes;

use load::{Face, Load};
use report::{LatencyRow, LifeRow, Report, Row};
use target::Target;

/// Connections of the loads on one face that ask for the best.
const CONNECTIONS: usize = 8;

/// Jobs in one enqueue, delivery and report of all loads but full lives.
const BATCH: usize = 100;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Enqueue, lease, complete, all at once, beside a bare log.
    Lives,
    /// Enqueueing alone, in batches of 100 over 8 connections.
    Enqueue,
    /// Taking and completing 200,000 jobs that wait, in batches of 100 over 8 connections.
    Take,
    /// Two producers and four consumers, in batches of 100.
    Mix,
    /// From enqueue to start with an idle worker, at --rates.
    Latency,
    /// As mix, on an empty queue and above a million jobs that wait.
    Deep,
    /// Several shards, in one process and as servers of their own: lives, graphs over 8 of them, messages, cancelling.
    Shards,
}

/// Measures full lives (enqueue, lease, complete) per second, enqueueing and taking by themselves, a
/// steady flow, and the time from an enqueue to the start of the job, through gRPC and over HTTP.
///
/// By itself it starts a server with a fresh store in --dir and removes both in the end; with --attach it
/// loads the server named by --server. Everything is flushed to disk before it is acknowledged, and
/// so is the bare log beside it: an append-only file, flushed after each batch of records,
/// three records a life. Prints tables in Markdown.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to measure, several separated by commas.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "lives,enqueue,take,mix,latency,deep"
    )]
    loads: Vec<Kind>,

    /// Through which faces, several separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "grpc,http")]
    faces: Vec<Face>,

    /// Connections at once for full lives, several separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    connections: Vec<usize>,

    /// Jobs in one enqueue, delivery and report of full lives, several separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16,256")]
    batches: Vec<usize>,

    /// Jobs a second while the time from enqueue to start is measured, several separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "20,1000")]
    rates: Vec<u32>,

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
    if args.loads.contains(&Kind::Lives) {
        measure_lives(&target, &args, &mut report).await?;
    }
    if args.loads.contains(&Kind::Shards) {
        report.shards = shards::measure(&target, args.payload, args.time).await?;
    }
    let by_face = |kind: &&Kind| !matches!(kind, Kind::Lives | Kind::Shards);
    for &kind in args.loads.iter().filter(by_face) {
        for &face in &args.faces {
            remark(format!("measuring {}: {kind:?}", face.name()).to_lowercase());
            measure(&target, &args, kind, face, &mut report).await?;
        }
    }
    if context.is_json() {
        context.json(&report.json())?;
    } else {
        context.line(report.text())?;
    }
    Ok(Exit::Done)
}

/// Each face beside the other and the bare log, in the same ten seconds.
async fn measure_lives(
    target: &Target,
    args: &BenchArgs,
    report: &mut Report,
) -> Result<(), Failure> {
    for &batch in &args.batches {
        for &connections in &args.connections {
            remark(format!(
                "measuring lives: {connections} connections, batches of {batch}"
            ));
            let bare = log::measure(target.dir(), batch, args.payload, args.time)?;
            for &face in &args.faces {
                let measured =
                    lives::measure(target, face, connections, batch, args.payload, args.time)
                        .await?;
                report.lives.push(LifeRow {
                    face,
                    connections,
                    batch,
                    measured,
                    bare,
                });
            }
        }
    }
    Ok(())
}

async fn measure(
    target: &Target,
    args: &BenchArgs,
    kind: Kind,
    face: Face,
    report: &mut Report,
) -> Result<(), Failure> {
    let (payload, time) = (args.payload, args.time);
    match kind {
        Kind::Lives | Kind::Shards => {}
        Kind::Enqueue => {
            let load = Load::new(face, "enqueue", BATCH, payload, 0);
            let measured = enqueue::measure(target, &load, CONNECTIONS, time).await?;
            report.rows.push(Row::new("enqueue", face, measured));
        }
        Kind::Take => {
            let measured = flow::take(target, face, payload).await?;
            report.rows.push(Row::new("take", face, measured));
        }
        Kind::Mix => {
            let measured = flow::mix(target, face, payload, time).await?;
            report.rows.push(Row::new("mix", face, measured));
        }
        Kind::Deep => {
            let depth = flow::depth(target, face, payload, time).await?;
            report.rows.push(Row::new("mix_empty", face, depth.empty));
            report.rows.push(Row::new("mix_deep", face, depth.deep));
        }
        Kind::Latency => {
            for &rate in &args.rates {
                let latency = latency::measure(target, face, rate, payload, time).await?;
                report.latency.push(LatencyRow {
                    face,
                    rate,
                    latency,
                });
            }
        }
    }
    Ok(())
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
    if args.attach && args.loads.contains(&Kind::Shards) {
        return Err(Failure::usage(
            "--loads shards starts and stops servers of its own: leave --attach out",
        ));
    }
    if args.rates.contains(&0) {
        return Err(Failure::usage("--rates must be at least 1"));
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
