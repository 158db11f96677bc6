//! `ganger namespace`: show and change namespaces.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ganger_client::{Backoff, Clock, NamespaceSettings, NamespaceView};

use crate::command::queue::{Setting, optional, optional_span, read_backoff};
use crate::context::Context;
use crate::document::span::read_span;
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::Rows;
use crate::show::{bytes, escape, time};

/// Show and change namespaces.
#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceCommand {
    /// List the namespaces with their settings.
    #[command(visible_alias = "ls")]
    List,
    /// Change settings of a namespace; others stay as they are.
    Set(Box<SetArgs>),
}

/// Changes settings of a namespace. `none` removes a limit.
#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// Name of the namespace.
    name: String,

    /// Maximum number of live jobs; more are refused.
    #[arg(long, value_name = "N|none", value_parser = optional::<u64>)]
    live_max: Option<Setting<u64>>,

    /// Maximum number of queues.
    #[arg(long, value_name = "N")]
    queues_max: Option<u64>,

    /// Length of leases, for queues that set none.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    lease_for: Option<Duration>,

    /// Number of retries, for queues and jobs that set none.
    #[arg(long, value_name = "N")]
    retries: Option<u32>,

    /// Pause before each retry: one duration, several separated by commas, or BASE..CAP, which doubles.
    #[arg(long, value_name = "PAUSE", value_parser = read_backoff)]
    backoff: Option<Backoff>,

    /// Retention of jobs that succeeded.
    #[arg(long, value_name = "DURATION|none", value_parser = optional_span)]
    keep_succeeded: Option<Setting<Duration>>,

    /// Retention of jobs that failed or were cancelled.
    #[arg(long, value_name = "DURATION|none", value_parser = optional_span)]
    keep_failed: Option<Setting<Duration>>,

    /// Maximum number of history entries per job.
    #[arg(long, value_name = "N")]
    history_max: Option<u32>,

    /// Maximum size of a payload, an input value and a result, in bytes.
    #[arg(long, value_name = "BYTES")]
    payload_bytes_max: Option<u64>,

    /// Number of lease expirations in a row after which a job fails; 0 for never.
    #[arg(long, value_name = "N")]
    lease_expirations_in_a_row_max: Option<u32>,

    /// Clock that times the namespace.
    #[arg(long)]
    clock: Option<ClockArg>,
}

/// The clock of a namespace.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ClockArg {
    /// That of the server: timers act by themselves.
    Server,
    /// Each request brings its own time.
    Caller,
}

pub(crate) async fn run(context: &Context, command: NamespaceCommand) -> Outcome {
    match command {
        NamespaceCommand::List => list(context).await,
        NamespaceCommand::Set(args) => set(context, *args).await,
    }
}

async fn list(context: &Context) -> Outcome {
    let namespaces = context.client().await?.namespaces().await?;
    show(context, &namespaces)
}

fn show(context: &Context, namespaces: &[NamespaceView]) -> Outcome {
    if context.is_json() {
        for namespace in namespaces {
            context.json(namespace)?;
        }
        return Ok(Exit::Done);
    }
    let mut rows = Rows::new(&[
        "namespace",
        ">live max",
        ">queues max",
        ">lease",
        ">retries",
        ">payload max",
        "clock",
    ]);
    for view in namespaces {
        let settings = &view.settings;
        let live_max = settings.live_max;
        rows.push([
            escape::line(&view.namespace),
            live_max.map_or("no limit".to_owned(), |most| most.to_string()),
            settings.queues_max.to_string(),
            time::span(settings.lease_for),
            settings.retry.retries_max.to_string(),
            bytes(settings.payload_bytes_max),
            match settings.clock {
                Clock::Server => "server",
                Clock::Caller => "caller",
            }
            .to_owned(),
        ]);
    }
    context.line(rows.text())?;
    Ok(Exit::Done)
}

/// Reads the settings, changes those that were given, and writes them back.
async fn set(context: &Context, args: SetArgs) -> Outcome {
    let client = context.client().await?;
    let all = client.namespaces().await?.into_iter();
    let mut known = all.filter(|view| view.namespace == args.name);
    let before = known.next().map(|view| view.settings).unwrap_or_default();
    let name = args.name.clone();
    let after = apply(before.clone(), args);
    if after == before {
        return Err(Failure::usage(
            "nothing to change: see `ganger namespace set --help`",
        ));
    }
    let view = client.configure_namespace(&name, after).await?;
    show(context, &[view])
}

fn apply(mut settings: NamespaceSettings, args: SetArgs) -> NamespaceSettings {
    if let Some(limit) = args.live_max {
        settings.live_max = limit.value();
    }
    if let Some(keep) = args.keep_succeeded {
        settings.retention.succeeded.age = keep.value();
    }
    if let Some(keep) = args.keep_failed {
        settings.retention.failed.age = keep.value();
        settings.retention.cancelled.age = keep.value();
    }
    match args.clock {
        Some(ClockArg::Server) => settings.clock = Clock::Server,
        Some(ClockArg::Caller) => settings.clock = Clock::Caller,
        None => {}
    }
    let retry = &mut settings.retry;
    retry.retries_max = args.retries.unwrap_or(retry.retries_max);
    if let Some(backoff) = args.backoff {
        retry.backoff = backoff;
    }
    settings.queues_max = args.queues_max.unwrap_or(settings.queues_max);
    settings.lease_for = args.lease_for.unwrap_or(settings.lease_for);
    settings.history_max = args.history_max.unwrap_or(settings.history_max);
    settings.payload_bytes_max = args.payload_bytes_max.unwrap_or(settings.payload_bytes_max);
    settings.lease_expirations_in_a_row_max = args
        .lease_expirations_in_a_row_max
        .unwrap_or(settings.lease_expirations_in_a_row_max);
    settings
}
