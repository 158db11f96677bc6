//! `ganger workers`: the workers, and the jobs they run.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::context::{Context, OfShard, remark, remark_unreachable, with_shard};
use crate::exit::{Exit, Outcome};
use crate::show::table::Rows;
use crate::show::{counted, escape, time};

/// Shows the known workers, and the jobs they run.
///
/// ganger workers --long
/// ganger workers release w-3
#[derive(Args, Debug)]
pub(crate) struct WorkersArgs {
    #[command(subcommand)]
    action: Option<WorkersCommand>,

    /// Show each leased job.
    #[arg(short, long)]
    long: bool,

    #[command(flatten)]
    of: OfShard,
}

/// Lists workers, and acts on one.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkersCommand {
    /// Deregister a worker that is dead: its leases end, and its jobs go back to their queues.
    Release {
        /// Name of the worker.
        worker: String,
    },
}

async fn release(context: &Context, worker: &str) -> Outcome {
    let changed = context.client().await?.release_worker(worker).await?;
    let text = format!(
        "{} of worker {} given back",
        counted(changed, "job"),
        escape::line(worker)
    );
    context.either(&json!({ "changed": changed }), text)?;
    Ok(Exit::Done)
}

pub(crate) async fn run(context: &Context, args: &WorkersArgs) -> Outcome {
    if let Some(WorkersCommand::Release { worker }) = &args.action {
        return release(context, worker).await;
    }
    let listed = context
        .client_of_shard(&args.of)
        .await?
        .list_workers()
        .await?;
    remark_unreachable(&listed.unreachable);
    let workers = listed.entries;
    if context.is_json() {
        for worker in &workers {
            context.json(worker)?;
        }
        return Ok(Exit::Done);
    }
    if workers.is_empty() {
        remark("no worker has asked for jobs: `ganger worker --dir DIR` starts one");
        return Ok(Exit::Done);
    }
    let now = SystemTime::now();
    if args.long {
        let mut rows = Rows::new(&["worker", "job", "kind", "queue", "leased"]);
        for worker in &workers {
            for held in &worker.holds {
                rows.push([
                    with_shard(worker.shard.as_deref(), &worker.worker),
                    escape::line(&held.job),
                    escape::line(&held.kind),
                    escape::line(&held.queue),
                    time::relative(held.leased_at, now),
                ]);
            }
        }
        context.line(rows.text())?;
        return Ok(Exit::Done);
    }
    let mut rows = Rows::new(&["worker", "seen", ">holds", "kinds"]);
    for worker in &workers {
        let mut kinds: Vec<String> = worker
            .holds
            .iter()
            .map(|held| escape::line(&held.kind))
            .collect();
        kinds.sort();
        kinds.dedup();
        rows.push([
            with_shard(worker.shard.as_deref(), &worker.worker),
            time::relative(worker.seen_at, now),
            worker.holds.len().to_string(),
            kinds.join(", "),
        ]);
    }
    context.line(rows.text())?;
    Ok(Exit::Done)
}
