//! `ganger job depend` and `undepend`: what a blocked job waits for.

use clap::{Args, ValueEnum};
use ganger_client::{ChangeResult, FailurePolicy};

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::show::{escape, json as views};

/// Makes a blocked job wait for more jobs.
#[derive(Args, Debug)]
pub(crate) struct DependArgs {
    /// Id of the blocked job, or shard/id.
    job: String,

    /// Ids of the jobs to wait for; those that have succeeded count as met.
    #[arg(required = true)]
    on: Vec<String>,

    /// What happens to the job if one of them does not succeed.
    #[arg(long, default_value = "fail")]
    policy: PolicyArg,
}

/// Makes a blocked job wait for fewer jobs. Dependencies that carry data stay.
#[derive(Args, Debug)]
pub(crate) struct UndependArgs {
    /// Id of the blocked job, or shard/id.
    job: String,

    /// Ids of the jobs not to wait for.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    on: Vec<String>,

    /// Remove all dependencies without data.
    #[arg(long)]
    all: bool,
}

/// What a job does when a dependency does not succeed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyArg {
    /// It fails too, without a run.
    Fail,
    /// It waits until the dependency was retried and succeeded.
    Wait,
    /// It goes on as if the dependency had succeeded.
    Ignore,
}

impl From<PolicyArg> for FailurePolicy {
    fn from(policy: PolicyArg) -> Self {
        match policy {
            PolicyArg::Fail => Self::Fail,
            PolicyArg::Wait => Self::Wait,
            PolicyArg::Ignore => Self::Ignore,
        }
    }
}

fn refs(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).collect()
}

/// Runs `ganger job depend`: a waiting job waits for more jobs.
pub(crate) async fn depend(context: &Context, args: &DependArgs) -> Outcome {
    let client = context.client().await?;
    let changed = client
        .add_dependencies(&args.job, &refs(&args.on), args.policy.into())
        .await?;
    done(context, &changed, &args.job, "added to")
}

/// Runs `ganger job undepend`: a waiting job no longer waits for some or all jobs.
pub(crate) async fn undepend(context: &Context, args: &UndependArgs) -> Outcome {
    let client = context.client().await?;
    let on = refs(&args.on);
    let on = (!args.all).then_some(&on[..]);
    let changed = client.remove_dependencies(&args.job, on).await?;
    done(context, &changed, &args.job, "removed from")
}

fn done(context: &Context, changed: &ChangeResult, job: &str, what: &str) -> Outcome {
    let word = if changed.count == 1 {
        "dependency"
    } else {
        "dependencies"
    };
    let text = format!("{} {word} {what} {}", changed.count, escape::line(job));
    context.either(&views::changed(changed), text)?;
    if changed.skipped.is_empty() {
        return Ok(Exit::Done);
    }
    let skipped: Vec<String> = changed.skipped.iter().map(|id| escape::line(id)).collect();
    Err(Failure::new(
        Exit::NotFound,
        "skipped",
        format!("not {what} {}: {}", escape::line(job), skipped.join(", ")),
    ))
}
