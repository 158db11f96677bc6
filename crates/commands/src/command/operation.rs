//! `ganger operation`: actions on all jobs that match conditions, which the server does in the background.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::{Args, Subcommand};
use ganger_client::{Client, NewOperation, Operation, OperationState};
use indicatif::{ProgressBar, ProgressStyle};

use crate::context::{Context, remark};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::{Rows, facts};
use crate::show::{counted, escape, time};

/// Pause between two looks at an operation that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Number of jobs that were left out and are printed.
const LEFT_OUT_LINES_MAX: usize = 10;

/// Show and stop operations: actions on all jobs that match conditions. `ganger job cancel`, `retry` and `delete`
/// start one if conditions are given.
#[derive(Debug, Subcommand)]
pub(crate) enum OperationCommand {
    /// List the operations that run, and those that ended within 7 days, newest first.
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show an operation and how far it is.
    Get(Name),
    /// Stop an operation; what it has done stays.
    Stop(Name),
    /// Wait until an operation has ended.
    Wait(Name),
}

/// Lists operations, newest first.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Maximum number of operations, 1 to 100.
    #[arg(short, long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
}

/// Arguments that name an operation.
#[derive(Args, Debug)]
pub(crate) struct Name {
    /// Name of the operation, such as op-7, or shard/op-7.
    operation: String,
}

pub(crate) async fn run(context: &Context, command: OperationCommand) -> Outcome {
    let client = context.client().await?;
    match command {
        OperationCommand::List(args) => list(context, &client, args.limit).await,
        OperationCommand::Get(name) => {
            let operation = client.operation(&name.operation).await?;
            context.either(&operation, text(&operation))?;
            Ok(Exit::Done)
        }
        OperationCommand::Stop(name) => {
            let operation = client.stop_operation(&name.operation).await?;
            context.either(&operation, text(&operation))?;
            Ok(Exit::Done)
        }
        OperationCommand::Wait(name) => {
            let operation = client.operation(&name.operation).await?;
            let Some(operation) = wait(context, &client, operation).await? else {
                return Ok(Exit::StillRunning);
            };
            context.either(&operation, text(&operation))?;
            Ok(exit_of(&operation))
        }
    }
}

async fn list(context: &Context, client: &Client, limit: u32) -> Outcome {
    let (operations, next) = client.operations(None, limit).await?;
    if context.is_json() {
        for operation in &operations {
            context.json(operation)?;
        }
        return Ok(Exit::Done);
    }
    if operations.is_empty() {
        remark("no operations");
        return Ok(Exit::Done);
    }
    let columns = [
        "operation",
        "action",
        "state",
        ">done",
        ">of",
        ">skipped",
        ">failed",
        "began",
        "by",
    ];
    let mut rows = Rows::new(&columns);
    for operation in &operations {
        let of = operation.matching.map(|count| count.to_string());
        rows.push([
            operation.operation.clone(),
            operation.action.clone(),
            operation.state.as_str().to_owned(),
            operation.done.to_string(),
            of.unwrap_or_else(|| "-".to_owned()),
            operation.skipped.to_string(),
            operation.failed.to_string(),
            time::absolute(operation.began_at),
            escape::line(&operation.by),
        ]);
    }
    context.line(rows.text())?;
    if next.is_some() {
        remark("there are more: give --limit");
    }
    Ok(Exit::Done)
}

/// Starts an operation and waits for its end, with its progress on a terminal. `None` if the wait was interrupted: the
/// operation then goes on in the server.
pub(crate) async fn start_and_wait(
    context: &Context,
    client: &Client,
    new: NewOperation,
) -> Result<Option<Operation>, Failure> {
    let operation = client.start_operation(new).await?;
    wait(context, client, operation).await
}

async fn wait(
    context: &Context,
    client: &Client,
    mut operation: Operation,
) -> Result<Option<Operation>, Failure> {
    let name = format!("{}/{}", operation.shard, operation.operation);
    let bar = (!context.is_json() && io::stderr().is_terminal()).then(progress_bar);
    while operation.is_running() {
        if let Some(bar) = &bar {
            show(bar, &operation);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = tokio::signal::ctrl_c() => {
                if let Some(bar) = &bar {
                    bar.finish_and_clear();
                }
                remark(format!(
                    "{name} goes on in the server: `ganger operation get {name}` shows how far it is, `ganger operation \
                     stop {name}` stops it"
                ));
                return Ok(None);
            }
        }
        operation = client.operation(&name).await?;
    }
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    Ok(Some(operation))
}

fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos} of {len}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}

fn show(bar: &ProgressBar, operation: &Operation) {
    let looked_at = operation.done + operation.skipped + operation.failed;
    bar.set_message(format!("{} {}", operation.operation, operation.action));
    bar.set_length(operation.matching.unwrap_or(0).max(looked_at));
    bar.set_position(looked_at);
}

/// The exit code of an operation that has ended.
pub(crate) fn exit_of(operation: &Operation) -> Exit {
    match operation.state {
        OperationState::Done => Exit::Done,
        OperationState::Running => Exit::StillRunning,
        OperationState::Stopped | OperationState::Failed => Exit::Failed,
    }
}

/// Prints the jobs that were not changed, with the reasons.
pub(crate) fn remark_left_out(operation: &Operation, done: &str) {
    for left_out in operation.left_out.iter().take(LEFT_OUT_LINES_MAX) {
        let (job, reason) = (escape::line(&left_out.job), escape::line(&left_out.reason));
        remark(format!("{job} was not {done}: {reason}"));
    }
    let left_out = operation.skipped + operation.failed;
    let shown = u64::try_from(operation.left_out.len().min(LEFT_OUT_LINES_MAX)).unwrap_or(u64::MAX);
    if left_out > shown {
        remark(format!("nor {} more", counted(left_out - shown, "job")));
    }
    if let Some(message) = &operation.message {
        remark(format!(
            "{}: {}",
            operation.state.as_str(),
            escape::line(message)
        ));
    }
}

fn text(operation: &Operation) -> String {
    let mut lines = vec![
        ("operation", operation.operation.clone()),
        ("shard", operation.shard.clone()),
        ("action", operation.action.clone()),
        ("state", operation.state.as_str().to_owned()),
    ];
    let mut some = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    some("message", operation.message.as_deref().map(escape::line));
    some(
        "matching",
        operation.matching.map(|count| count.to_string()),
    );
    some("done", Some(operation.done.to_string()));
    some("skipped", Some(operation.skipped.to_string()));
    some("failed", Some(operation.failed.to_string()));
    some("at most", operation.at_most.map(|most| most.to_string()));
    some("reason", operation.reason.as_deref().map(escape::line));
    some("by", Some(escape::line(&operation.by)));
    some("began", Some(time::absolute(operation.began_at)));
    some("ended", operation.ended_at.map(time::absolute));
    for left_out in operation.left_out.iter().take(LEFT_OUT_LINES_MAX) {
        let (job, reason) = (escape::line(&left_out.job), escape::line(&left_out.reason));
        lines.push(("left out", format!("{job}: {reason}")));
    }
    facts(&lines)
}
