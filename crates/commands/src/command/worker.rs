//! `ganger worker`: flags to settings; the worker itself is in `ganger-worker`. The pool that inserts NGSI
//! notifications starts in `ngsi`.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ganger_client::{ShardId, TakeFrom, TakeMode};
use ganger_server::Flag;
use ganger_worker::Settings;

#[cfg(feature = "quantumleap")]
use crate::command::ngsi::{self, NgsiArgs};
use crate::command::outbox::read_shard;
use crate::context::{Context, remark};
use crate::document::span::read_span;
use crate::exit::{Exit, Failure, Outcome};

/// Runs a worker: leases jobs and runs the program DIR/KIND for each.
///
/// A program reads a JSON list of its arguments on standard input and writes one JSON value, its result, to standard
/// output; standard error is its log. Exit 0 is success, 100 a permanent failure, anything else a failure that may be
/// retried. On Ctrl-C or SIGTERM the worker leases no new jobs, and running programs get the grace period.
///
/// With --ngsi no programs run: a pool of workers inserts the notifications that `ganger server --quantumleap` has
/// queued into PostgreSQL, as QuantumLeap's workers do. Put its password into `POSTGRES_DB_PASS`.
#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    /// Name of the worker; host name and a random suffix if absent.
    #[arg(long, value_name = "NAME")]
    id: Option<String>,

    /// Shard to lease jobs from; the server's own, or its first, if absent.
    #[arg(long, value_name = "SHARD", value_parser = read_shard)]
    shard: Option<ShardId>,

    /// Directory of the programs, one for each kind.
    #[arg(long, value_name = "DIR", default_value = "/etc/ganger/worker.d")]
    dir: PathBuf,

    /// Queue to lease from; may be repeated. With --mode weighted: QUEUE=WEIGHT.
    #[cfg_attr(
        feature = "quantumleap",
        doc = "With --ngsi: the one queue of the notifications, quantumleap if absent."
    )]
    #[arg(short, long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,

    /// How several queues are combined.
    #[arg(long, default_value = "ordered")]
    mode: Mode,

    /// Maximum number of programs at a time; one for each core if absent.
    #[arg(short = 'j', long, value_name = "N")]
    concurrency: Option<usize>,

    /// Length of the leases; the queue's setting if absent.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    lease_for: Option<Duration>,

    /// Time between asking a program to end and killing it.
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = read_span,
        default_value = "10s"
    )]
    grace: Duration,

    /// Directory for working directories of programs.
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Variable that programs inherit besides the standard ones; may be repeated.
    #[arg(long = "pass-env", value_name = "NAME")]
    pass_env: Vec<String>,

    /// Delay until a job without a program is offered again.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    no_handler_delay: Option<Duration>,

    /// Filter of log lines: error, warn, info, debug, trace, or directives; info if absent.
    #[cfg_attr(
        feature = "quantumleap",
        doc = "With --ngsi: as LOGLEVEL says if absent."
    )]
    #[arg(long, value_name = "LEVEL", env = "GANGER_LOG")]
    log: Option<String>,

    /// Address for Prometheus metrics at /metrics, and for /healthz; :PORT is this machine only.
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,

    #[cfg(feature = "quantumleap")]
    #[command(flatten)]
    ngsi: NgsiArgs,
}

/// Default filter of log lines.
pub(super) const DEFAULT_LOG: &str = "info";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// A queue is used only when those named before it are empty.
    Ordered,
    /// Takes jobs from the queues in turn.
    RoundRobin,
    /// Takes jobs from the queues in turn, by weight.
    Weighted,
}

pub(crate) async fn run(context: &Context, args: WorkerArgs) -> Outcome {
    let metrics = args.metrics.as_deref().map(read_address).transpose()?;
    #[cfg(feature = "quantumleap")]
    if args.ngsi.is_wanted() {
        let place = ngsi::PoolConnection {
            shard: args.shard,
            name: args.id,
            queues: args.queues,
            metrics,
        };
        return ngsi::run(context, args.ngsi, place, args.log).await;
    }
    start_log(args.log.as_deref().unwrap_or(DEFAULT_LOG))?;
    if !args.dir.is_dir() {
        let message = format!("there is no directory {}", args.dir.display());
        return Err(Failure::usage(message).then(
            "name the directory of the programs with --dir; each executable file in it runs the jobs of that kind:\n  \
             mkdir programs\n  \
             printf '#!/bin/sh\\ncat\\n' > programs/echo && chmod +x programs/echo\n  \
             ganger worker --dir programs",
        ));
    }
    let settings = settings(context, args)?;
    if let Some(address) = metrics {
        let numbers = Arc::clone(&settings.metrics);
        ganger_worker::show_metrics(address, move || numbers.text())
            .await
            .map_err(|error| {
                Failure::usage(format!("cannot listen at {address} for --metrics: {error}"))
            })?;
    }
    let shutdown = ganger_worker::shutdown_on_signals()?;
    let summary = ganger_worker::run(settings, shutdown)
        .await
        .map_err(failure)?;
    remark(format!(
        "{} succeeded, {} failed, {} released, {} dropped, {} undelivered",
        summary.succeeded, summary.failed, summary.released, summary.dropped, summary.undelivered
    ));
    Ok(if summary.undelivered == 0 {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn read_address(text: &str) -> Result<SocketAddr, Failure> {
    let whole = match text.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    let found = whole.to_socket_addrs().map(|mut found| found.next());
    found.ok().flatten().ok_or_else(|| {
        Failure::usage(format!(
            "--metrics {text} is not an address: write it HOST:PORT, or :PORT for this machine only"
        ))
    })
}

fn failure(error: ganger_worker::Error) -> Failure {
    match error {
        ganger_worker::Error::Client(error) => error.into(),
        other => Failure::usage(other.to_string()),
    }
}

fn settings(context: &Context, args: WorkerArgs) -> Result<Settings, Failure> {
    let default = Settings::default();
    let queues = if args.queues.is_empty() {
        default.queues.clone()
    } else {
        args.queues
            .iter()
            .map(|text| read_queue(text, args.mode))
            .collect::<Result<_, _>>()?
    };
    if args.concurrency == Some(0) {
        return Err(Failure::usage("--concurrency must be at least 1"));
    }
    Ok(Settings {
        server: context.options()?,
        shard: args.shard,
        name: args.id,
        directory: args.dir,
        queues,
        mode: match args.mode {
            Mode::Ordered => TakeMode::Ordered,
            Mode::RoundRobin => TakeMode::RoundRobin,
            Mode::Weighted => TakeMode::Weighted,
        },
        concurrency: args.concurrency.unwrap_or(default.concurrency),
        lease_for: args.lease_for,
        grace: args.grace,
        scratch: args.scratch.unwrap_or(default.scratch),
        pass_env: args.pass_env,
        no_handler_delay: args.no_handler_delay.unwrap_or(default.no_handler_delay),
        ..Settings::default()
    })
}

fn read_queue(text: &str, mode: Mode) -> Result<TakeFrom, Failure> {
    if mode != Mode::Weighted {
        return Ok(TakeFrom::new(text));
    }
    let wanted = || {
        Failure::usage(format!(
            "--queue {text}: with --mode weighted write it QUEUE=WEIGHT, such as mail=3"
        ))
    };
    let (queue, weight) = text.rsplit_once('=').ok_or_else(wanted)?;
    let weight = weight
        .parse()
        .ok()
        .filter(|weight| *weight > 0)
        .ok_or_else(wanted)?;
    Ok(TakeFrom {
        queue: queue.to_owned(),
        weight,
    })
}

/// Starts logging to standard error, with control characters escaped.
pub(super) fn start_log(level: &str) -> Result<(), Failure> {
    let flag = Flag {
        key: "log",
        flag: "--log",
        value: level.to_owned(),
    };
    let config = ganger_server::load(None, [], &[flag])
        .map_err(|error| Failure::usage(error.to_string()))?;
    ganger_server::start_log(&config);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_served_on_loopback_unless_a_host_is_named() {
        let read = |text| read_address(text).expect(text).to_string();
        assert_eq!(read(":9100"), "127.0.0.1:9100");
        assert_eq!(read("0.0.0.0:9100"), "0.0.0.0:9100");
        for text in ["9100", "", ":x", "h"] {
            assert!(read_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_weighted_queue_has_a_weight() {
        let queue = read_queue("mail=3", Mode::Weighted).expect("readable");
        assert_eq!(
            queue,
            TakeFrom {
                queue: "mail".to_owned(),
                weight: 3
            }
        );
        for text in ["mail", "mail=", "mail=0", "mail=-1"] {
            assert!(read_queue(text, Mode::Weighted).is_err(), "{text}");
        }
        assert_eq!(
            read_queue("a=b", Mode::Ordered).expect("a name"),
            TakeFrom::new("a=b")
        );
    }
}
