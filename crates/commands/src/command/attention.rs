//! `ganger attention`: what needs attention, the worst first.

use std::time::SystemTime;

use clap::Args;
use ganger_client::AttentionItem;

use crate::context::{Context, remark};
use crate::exit::{Exit, Outcome};
use crate::show::table::Rows;
use crate::show::{escape, time};

/// Shows what needs attention in the namespace and on all shards, the worst first.
#[derive(Args, Debug)]
pub(crate) struct AttentionArgs {
    /// Fail with exit code 1 if an item is an error: work stands still, or soon will.
    #[arg(long)]
    fail: bool,
}

pub(crate) async fn run(context: &Context, args: &AttentionArgs) -> Outcome {
    let items = context.client().await?.attention().await?;
    if context.is_json() {
        for item in &items {
            context.json(item)?;
        }
    } else if items.is_empty() {
        remark("nothing needs attention");
    } else {
        context.line(table(&items, SystemTime::now()))?;
    }
    let is_bad = items.iter().any(|item| item.gravity.as_str() == "error");
    Ok(if args.fail && is_bad {
        Exit::Failed
    } else {
        Exit::Done
    })
}

fn table(items: &[AttentionItem], now: SystemTime) -> String {
    let mut rows = Rows::new(&["gravity", "code", "shard", "what", "since"]);
    for item in items {
        rows.push([
            item.gravity.as_str().to_owned(),
            escape::line(&item.code),
            escape::line(item.shard.as_deref().unwrap_or_default()),
            escape::short(&item.text, 200),
            item.since
                .map_or_else(String::new, |since| time::relative(since, now)),
        ]);
    }
    rows.text()
}
