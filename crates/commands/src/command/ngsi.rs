//! `ganger worker --ngsi`: flags and QuantumLeap's variables to settings; the pool itself is in `ganger-ngsi-worker`.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use ganger_client::ShardId;
use ganger_ngsi::environment::{self, Database, Environment};
use ganger_ngsi::job::QUEUE;
use ganger_ngsi_worker::{Error, Program, Settings, WORKERS_MAX, variables};

use crate::command::worker::{DEFAULT_LOG, start_log};
use crate::context::{Context, remark};
use crate::exit::{Exit, Failure, Outcome};

/// Variable with the log level of the child processes.
const LOG_VARIABLE: &str = "GANGER_LOG";
/// Variables that child processes do not get.
const SECRETS: [&str; 2] = ["GANGER_TOKEN", "GANGER_TOKEN_FILE"];

/// Options of the pool that inserts NGSI notifications.
#[derive(Args, Debug)]
pub(crate) struct NgsiArgs {
    /// Insert NGSI notifications into the PostgreSQL at URL, such as `postgres://user@host:5432/database`; without a
    /// URL, into the database named by `POSTGRES_HOST`, `POSTGRES_PORT`, `POSTGRES_DB_NAME`, `POSTGRES_DB_USER`,
    /// `POSTGRES_DB_PASS` and `POSTGRES_USE_SSL`.
    #[arg(
        long,
        value_name = "URL",
        num_args = 0..=1,
        conflicts_with_all = [
            "dir",
            "mode",
            "concurrency",
            "lease_for",
            "grace",
            "scratch",
            "pass_env",
            "no_handler_delay",
        ],
        help_heading = "NGSI"
    )]
    ngsi: Option<Option<String>>,

    /// Number of worker processes; the value of `WQ_WORKERS` if absent, else 1.
    #[arg(
        short,
        long,
        value_name = "N",
        requires = "ngsi",
        help_heading = "NGSI"
    )]
    workers: Option<usize>,

    /// End once no task is ready or running here. Tasks that wait for a retry are not waited for.
    #[arg(short, long, requires = "ngsi", help_heading = "NGSI")]
    burst_mode: bool,

    /// End after this number of attempts.
    #[arg(
        long,
        value_name = "K",
        requires = "ngsi",
        value_parser = clap::value_parser!(u64).range(1..),
        help_heading = "NGSI"
    )]
    max_tasks: Option<u64>,

    /// Directory for samples of attempts' durations, in CSV files.
    #[arg(long, value_name = "DIR", requires = "ngsi", help_heading = "NGSI")]
    collect_telemetry_in: Option<PathBuf>,
}

impl NgsiArgs {
    /// Whether to insert notifications at all.
    pub(crate) fn is_wanted(&self) -> bool {
        self.ngsi.is_some()
    }
}

/// The connection of a pool to the server.
pub(crate) struct PoolConnection {
    pub(crate) shard: Option<ShardId>,
    pub(crate) name: Option<String>,
    pub(crate) queues: Vec<String>,
    /// Address for its metrics; `None` for none.
    pub(crate) metrics: Option<SocketAddr>,
}

/// Arguments of the hidden command that a pool starts.
#[derive(Args, Debug)]
pub(crate) struct InsertArgs {
    /// Filter of the log lines to write.
    #[arg(long, env = LOG_VARIABLE, default_value = DEFAULT_LOG)]
    log: String,
}

pub(crate) async fn run(
    context: &Context,
    args: NgsiArgs,
    place: PoolConnection,
    log: Option<String>,
) -> Outcome {
    let environment = read_environment()?;
    let log = log.unwrap_or_else(|| environment.log_level.unwrap_or(DEFAULT_LOG).to_owned());
    start_log(&log)?;
    let settings = settings(context, args, place, &environment, log)?;
    let shutdown = ganger_ngsi_worker::shutdown_on_signals()?;
    let summary = ganger_ngsi_worker::run(settings, shutdown)
        .await
        .map_err(|error| failure(context, error))?;
    remark(format!(
        "{} inserted, {} failed, {} lost, {} released, {} dropped, {} undelivered",
        summary.inserted,
        summary.failed,
        summary.lost,
        summary.released,
        summary.dropped,
        summary.undelivered
    ));
    Ok(if summary.undelivered == 0 {
        Exit::Done
    } else {
        Exit::Failed
    })
}

/// Inserts tasks for a parent process. Not asynchronous: it needs only one thread, and makes its own runtime.
pub(crate) fn insert(args: &InsertArgs) -> Outcome {
    start_log(&args.log)?;
    ganger_ngsi_worker::insert_for_parent(read_environment()?)?;
    Ok(Exit::Done)
}

fn read_environment() -> Result<Environment, Failure> {
    let variable = |name: &str| env::var(name).ok();
    environment::read(variable, |path| std::fs::read_to_string(path))
        .map_err(|error| Failure::usage(error.to_string()))
}

fn failure(context: &Context, error: Error) -> Failure {
    match error {
        Error::Client(error) => context.explain(error),
        Error::GaveUp { .. } => Failure::failed(error.to_string()),
        other => Failure::usage(other.to_string()),
    }
}

fn settings(
    context: &Context,
    args: NgsiArgs,
    place: PoolConnection,
    environment: &Environment,
    log: String,
) -> Result<Settings, Failure> {
    let database = database(args.ngsi.flatten().as_deref(), &environment.database)?;
    let mut variables = variables(&database);
    variables.push((LOG_VARIABLE.to_owned(), log));
    Ok(Settings {
        server: context.options()?,
        shard: place.shard,
        name: place.name,
        queue: queue(place.queues)?,
        workers: workers(args.workers, environment.workers)?,
        is_burst: args.burst_mode,
        tasks_max: args.max_tasks,
        telemetry: args.collect_telemetry_in,
        metrics: place.metrics,
        program: Program {
            path: env::current_exe()?,
            arguments: vec!["ngsi-insert".into()],
            variables,
            hidden: SECRETS.map(str::to_owned).into(),
        },
        ..Settings::default()
    })
}

/// Returns the database of the URL; a missing password comes from the environment.
fn database(url: Option<&str>, otherwise: &Database) -> Result<Database, Failure> {
    let Some(url) = url else {
        return Ok(otherwise.clone());
    };
    let named = ganger_ngsi::postgres::Settings::from_url(url)
        .map_err(|error| Failure::usage(format!("--ngsi: {error}")))?;
    let mut database = named.database;
    if database.password.is_empty() {
        database.password.clone_from(&otherwise.password);
    }
    Ok(database)
}

fn queue(mut queues: Vec<String>) -> Result<String, Failure> {
    if queues.len() > 1 {
        let message = format!(
            "--queue is given {} times; notifications wait in one queue",
            queues.len()
        );
        return Err(Failure::usage(message).then("start a worker for each queue"));
    }
    Ok(queues.pop().unwrap_or_else(|| QUEUE.to_owned()))
}

fn workers(given: Option<usize>, usual: Option<usize>) -> Result<usize, Failure> {
    let workers = given.or(usual).unwrap_or(1);
    if (1..=WORKERS_MAX).contains(&workers) {
        return Ok(workers);
    }
    let source = if given.is_some() {
        "--workers"
    } else {
        "WQ_WORKERS"
    };
    Err(Failure::usage(format!(
        "{source} is {workers}; it must be 1 to {WORKERS_MAX}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn otherwise() -> Database {
        Database {
            host: "timescale".into(),
            port: 5_432,
            name: "quantumleap".into(),
            user: "quantumleap".into(),
            password: "of the environment".into(),
            ssl: false,
        }
    }

    #[test]
    fn without_a_url_the_environment_names_the_database() {
        assert_eq!(database(None, &otherwise()).expect("there"), otherwise());
    }

    #[test]
    fn a_url_without_a_password_gets_that_of_the_environment() {
        let read = |url| database(Some(url), &otherwise()).expect(url);
        assert_eq!(read("postgres://me@h/d").password, "of the environment");
        assert_eq!(read("postgres://me:own@h/d").password, "own");
        assert_eq!(read("postgres://me@h/d").host, "h");
    }

    #[test]
    fn the_number_of_workers_comes_from_the_flag_or_the_variable() {
        assert_eq!(workers(Some(3), Some(5)).expect("fine"), 3);
        assert_eq!(workers(None, Some(5)).expect("fine"), 5);
        assert_eq!(workers(None, None).expect("fine"), 1);
        for (given, usual, named) in [
            (Some(0), None, "--workers"),
            (None, Some(0), "WQ_WORKERS"),
            (Some(WORKERS_MAX + 1), None, "--workers"),
        ] {
            let failure = workers(given, usual).expect_err(named);
            assert!(failure.message.starts_with(named), "{failure}");
        }
    }

    #[test]
    fn more_than_one_queue_is_refused() {
        assert_eq!(queue(Vec::new()).expect("fine"), QUEUE);
        assert_eq!(queue(vec!["a".into()]).expect("fine"), "a");
        assert!(queue(vec!["a".into(), "b".into()]).is_err());
    }
}
