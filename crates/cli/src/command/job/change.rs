//! `ganger job cancel`, `retry`, `delete`, `time-out`, `set`.

use std::time::{Duration, SystemTime};

use clap::Args;
use ganger_client::{Alteration, Changed, Start};
use serde_json::json;

use crate::command::job::list::read_label;
use crate::command::run::argument;
use crate::context::{Context, remark};
use crate::document::span::{read_moment, read_span};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::{counted, escape, json as views};

/// Calls jobs off; those that have ended stay as they are.
#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// Ids.
    #[arg(required_unless_present = "graph")]
    pub(super) jobs: Vec<String>,

    /// All members of this graph.
    #[arg(long, conflicts_with = "jobs")]
    graph: Option<String>,

    /// Why, for the history.
    #[arg(long, default_value = "")]
    reason: String,
}

/// Puts finished jobs back on their queue with a new series of attempts.
#[derive(Args, Debug)]
pub(crate) struct RetryArgs {
    /// Ids.
    #[arg(required = true)]
    pub(super) jobs: Vec<String>,

    /// Into this queue instead of their own.
    #[arg(long)]
    queue: Option<String>,
}

/// Removes jobs altogether.
#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    /// Ids.
    #[arg(required = true)]
    pub(super) jobs: Vec<String>,
}

/// Ends running attempts.
#[derive(Args, Debug)]
pub(crate) struct TimeOutArgs {
    /// Ids.
    #[arg(required = true)]
    pub(super) jobs: Vec<String>,
}

/// Changes a job.
#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// Its id, or shard/id.
    pub(super) job: String,

    /// New priority; smaller runs first.
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i64>,

    /// New queue.
    #[arg(long)]
    queue: Option<String>,

    /// Not before so long from now.
    #[arg(long, value_name = "DURATION", value_parser = read_span, conflicts_with = "run_at")]
    delay: Option<Duration>,

    /// Not before this time.
    #[arg(long, value_name = "TIME")]
    run_at: Option<String>,

    /// New payload: a JSON value, or text.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,

    /// Put this tag on; may be repeated.
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,

    /// Take this tag off; may be repeated.
    #[arg(long, value_name = "TAG")]
    untag: Vec<String>,

    /// Set this label; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = read_label)]
    label: Vec<(String, String)>,

    /// Take the label of this key off; may be repeated.
    #[arg(long, value_name = "KEY")]
    no_label: Vec<String>,

    /// Follow it, or not.
    #[arg(long)]
    tracked: Option<bool>,

    /// A line for its history.
    #[arg(long)]
    note: Option<String>,
}

fn refs(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).collect()
}

/// Tells what was changed. What was asked for and not changed makes the command fail.
fn tell(context: &Context, changed: &Changed, done: &str, why_not: &str) -> Outcome {
    context.either(
        &views::changed(changed),
        format!("{} {done}", counted(changed.count, "job")),
    )?;
    if changed.skipped.is_empty() {
        return Ok(Exit::Done);
    }
    if !context.is_json() {
        for id in &changed.skipped {
            remark(format!("{} was not {done}: {why_not}", escape::line(id)));
        }
    }
    Ok(Exit::NotFound)
}

pub(crate) async fn cancel(context: &Context, args: &CancelArgs) -> Outcome {
    let client = context.client().await?;
    let changed = match &args.graph {
        Some(graph) => client.cancel_graph(graph, &args.reason).await?,
        None => client.cancel(&refs(&args.jobs), &args.reason).await?,
    };
    if args.graph.is_some() {
        // Members that have ended are no surprise here.
        let count = changed.count;
        context.either(
            &views::changed(&changed),
            format!("{} cancelled", counted(count, "job")),
        )?;
        return Ok(Exit::Done);
    }
    tell(
        context,
        &changed,
        "cancelled",
        "it is not there, or has ended",
    )
}

pub(crate) async fn retry(context: &Context, args: &RetryArgs) -> Outcome {
    let client = context.client().await?;
    let changed = client
        .revive(&refs(&args.jobs), args.queue.as_deref())
        .await?;
    tell(
        context,
        &changed,
        "put back",
        "it is not there, or has not ended",
    )
}

pub(crate) async fn delete(context: &Context, args: &DeleteArgs) -> Outcome {
    let client = context.client().await?;
    let changed = client.delete(&refs(&args.jobs)).await?;
    tell(
        context,
        &changed,
        "deleted",
        "it is not there, or other jobs wait for it",
    )
}

pub(crate) async fn time_out(context: &Context, args: &TimeOutArgs) -> Outcome {
    let client = context.client().await?;
    let changed = client.time_out(&refs(&args.jobs)).await?;
    tell(
        context,
        &changed,
        "timed out",
        "it is not there, or does not run",
    )
}

pub(crate) async fn set(context: &Context, args: SetArgs) -> Outcome {
    let run_at = args
        .run_at
        .map(|text| read_moment(&text, SystemTime::now()));
    let run_at = run_at.transpose().map_err(Failure::usage)?;
    let change = Alteration {
        priority: args.priority,
        queue: args.queue,
        start: args.delay.map(Start::After).or(run_at.map(Start::At)),
        payload: args.payload.as_deref().map(argument),
        tags_added: args.tag,
        tags_removed: args.untag,
        labels_set: args.label,
        labels_removed: args.no_label,
        tracked: args.tracked,
        note: args.note.map(|note| (note, String::new())),
    };
    if change == Alteration::default() {
        return Err(Failure::usage(
            "nothing to change: see `ganger job set --help`",
        ));
    }
    let (state, tags) = context.client().await?.alter(&args.job, change).await?;
    let id = escape::line(&args.job);
    context.either(
        &json!({ "id": args.job, "state": state.as_str(), "tags": tags }),
        format!("{id} changed; it is {state}"),
    )?;
    Ok(Exit::Done)
}
