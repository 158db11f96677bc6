//! `ganger workers`: the workers, and the jobs they run.

use std::time::SystemTime;

use clap::Args;

use crate::context::{Context, OfShard, remark, remark_unreachable, with_shard};
use crate::exit::{Exit, Outcome};
use crate::show::table::Rows;
use crate::show::{escape, time};

/// Shows the known workers, and the jobs they run.
#[derive(Args, Debug)]
pub(crate) struct WorkersArgs {
    /// Show each leased job.
    #[arg(short, long)]
    long: bool,

    #[command(flatten)]
    of: OfShard,
}

pub(crate) async fn run(context: &Context, args: &WorkersArgs) -> Outcome {
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
