//! `ganger bench`: measures a server, and a bare log on the same disk in the same run.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ganger_bench::{Api, Bench, Error, Kind, Plan};

use crate::context::{Context, remark};
use crate::document::span::read_span;
use crate::exit::{Exit, Failure, Outcome};
use crate::show::bytes;

/// Measures full lives (enqueue, lease, complete) per second, enqueueing and leasing separately, a steady flow, and
/// the time from an enqueue to the start of the job, over gRPC and HTTP. The loads e1 to d are those that
/// `cargo xtask bench-peers` compares with other queue servers.
///
/// Without --attach it starts a server with a new store in --dir and removes both at the end; with --attach it
/// measures the server named by --server. Everything is flushed to disk before it is acknowledged, and so is the bare
/// log: an append-only file, flushed after each batch of records, with three records per life. Prints tables in
/// Markdown.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Measurements to run, separated by commas.
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        value_delimiter = ',',
        default_value = "lives,enqueue,take,mix,latency,deep"
    )]
    loads: Vec<Kind>,

    /// APIs to measure, separated by commas; grpc is streams.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "streams,http"
    )]
    apis: Vec<Api>,

    /// Numbers of connections for full lives, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    connections: Vec<usize>,

    /// Numbers of jobs per enqueue, delivery and report of full lives, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16,256")]
    batches: Vec<usize>,

    /// Jobs per second while the time from enqueue to start is measured, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "20,1000")]
    rates: Vec<u32>,

    /// Numbers of waiting jobs, separated by commas: each for restart, the first for deep, d and memory.
    #[arg(long, value_delimiter = ',', default_value = "1000000")]
    waiting: Vec<u64>,

    /// Duration of each measurement.
    #[arg(long, value_name = "DURATION", value_parser = read_span, default_value = "3s")]
    time: Duration,

    /// Bytes of each job's payload.
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    payload: usize,

    /// Directory for the store and the bare log, on the disk to measure.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Program to start as the server, to compare builds of ganger; absent: this one.
    #[arg(long, value_name = "FILE", conflicts_with = "attach")]
    program: Option<PathBuf>,

    /// Measure the server named by --server instead of starting one.
    #[arg(long)]
    attach: bool,

    /// With --attach: process id of the server, to measure its CPU time.
    #[arg(long, value_name = "PID", requires = "attach")]
    server_pid: Option<u32>,
}

pub(crate) async fn run(context: &Context, args: BenchArgs) -> Outcome {
    check(&args)?;
    let plan = plan(context, args).await?;
    let bench = Bench::start(plan).await?;
    if !context.is_json() {
        context.line(bench.heading())?;
    }
    let report = bench.run(remark).await?;
    context.either(&report.json(), report.text())?;
    Ok(Exit::Done)
}

async fn plan(context: &Context, args: BenchArgs) -> Result<Plan, Failure> {
    let attach = if args.attach {
        context.client().await?;
        Some(context.options()?)
    } else {
        None
    };
    Ok(Plan {
        loads: args.loads,
        apis: args.apis,
        connections: args.connections,
        batches: args.batches,
        rates: args.rates,
        waiting: args.waiting,
        time: args.time,
        payload: args.payload,
        dir: args.dir,
        program: args.program.map_or_else(std::env::current_exe, Ok)?,
        attach,
        server_pid: args.server_pid,
    })
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Client(error) => error.into(),
            Error::File { path, error } => Self::file(&path, &error),
            Error::Io(error) => error.into(),
            Error::NotPlainHttp(_) => Self::usage(message),
            Error::BadReply(_) => Self::new(Exit::Unreachable, "bad_reply", message),
            Error::Refused(_) => Self::new(Exit::Refused, "refused", message),
            Error::Failed(_) => Self::failed(message),
        }
    }
}

/// The most jobs that are made to wait: more take hours.
const WAITING_MAX: u64 = 100_000_000;

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
    let own = args.loads.iter().find(|load| load.starts_servers());
    if let (true, Some(load)) = (args.attach, own) {
        return Err(Failure::usage(format!(
            "--loads {} starts and stops servers of its own: leave --attach out",
            load.name()
        )));
    }
    if args
        .waiting
        .iter()
        .any(|jobs| !(1..=WAITING_MAX).contains(jobs))
    {
        return Err(Failure::usage(format!(
            "--waiting must be from 1 to {WAITING_MAX} jobs"
        )));
    }
    if args.attach && args.apis.contains(&Api::Redis) {
        return Err(Failure::usage(
            "--apis redis measures the Redis port of a server that it starts: leave --attach out",
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
