//! `ganger job`: show and change jobs.

mod alter;
mod attempts;
mod change;
mod dependencies;
pub(crate) mod get;
mod graph;
mod list;
mod logs;
mod result;
pub(crate) mod why;

use clap::Subcommand;

use crate::context::Context;
use crate::exit::Outcome;

pub(crate) use list::{read_label, table};

/// Show and change jobs. A job is named by its id, or by `shard/id`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Show jobs with their state, attempts and history.
    Get(get::GetArgs),
    /// List jobs, newest first.
    #[command(visible_alias = "ls")]
    List(Box<list::ListArgs>),
    /// Wait until jobs have ended; the exit code tells whether all succeeded.
    Wait(get::WaitArgs),
    /// Cancel jobs: by id, a whole graph, or all that match conditions.
    Cancel(Box<change::CancelArgs>),
    /// Retry finished jobs: by id, with their dependents, a graph, or all that match conditions.
    Retry(Box<change::RetryArgs>),
    /// Remove jobs completely; running ones lose their lease.
    Delete(Box<change::DeleteArgs>),
    /// End running attempts now, without waiting for their leases.
    TimeOut(change::TimeOutArgs),
    /// Change priority, queue, start, tags, labels of a job.
    Set(Box<change::SetArgs>),
    /// Change priority, queue, tags, labels of all jobs that match conditions.
    Alter(Box<alter::AlterArgs>),
    /// Show the attempts of a job: when, on which worker, how long, how they ended.
    Attempts(attempts::AttemptsArgs),
    /// Make a blocked job wait for more jobs.
    Depend(dependencies::DependArgs),
    /// Make a blocked job wait for fewer jobs.
    Undepend(dependencies::UndependArgs),
    /// Show a job's log.
    #[command(visible_alias = "log")]
    Logs(logs::LogsArgs),
    /// Show the jobs around a job: its dependencies and dependents.
    Graph(graph::GraphArgs),
    /// Explain why a job is not running, and what to do.
    Why(why::WhyArgs),
    /// Print a job's result.
    Result(result::ResultArgs),
    /// Print a job's payload.
    Payload(result::PayloadArgs),
    /// Print a job's inputs.
    Inputs(result::InputsArgs),
}

pub(crate) async fn run(context: &Context, command: JobCommand) -> Outcome {
    match command {
        JobCommand::Get(args) => get::run(context, &args).await,
        JobCommand::List(args) => Box::pin(list::run(context, *args)).await,
        JobCommand::Wait(args) => get::wait(context, &args).await,
        JobCommand::Cancel(args) => change::cancel(context, *args).await,
        JobCommand::Retry(args) => change::retry(context, *args).await,
        JobCommand::Delete(args) => change::delete(context, *args).await,
        JobCommand::TimeOut(args) => change::time_out(context, &args).await,
        JobCommand::Set(args) => change::set(context, *args).await,
        JobCommand::Alter(args) => Box::pin(alter::run(context, *args)).await,
        JobCommand::Attempts(args) => attempts::run(context, &args).await,
        JobCommand::Depend(args) => dependencies::depend(context, &args).await,
        JobCommand::Undepend(args) => dependencies::undepend(context, &args).await,
        JobCommand::Logs(args) => logs::run(context, &args).await,
        JobCommand::Graph(args) => graph::run(context, &args).await,
        JobCommand::Why(args) => why::run(context, &args).await,
        JobCommand::Result(args) => result::result(context, &args).await,
        JobCommand::Payload(args) => result::payload(context, &args).await,
        JobCommand::Inputs(args) => result::inputs(context, &args).await,
    }
}
