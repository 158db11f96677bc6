//! `ganger outbox`: messages that wait for other shards, and resuming traffic.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use ganger_client::{Client, PeerView, ShardId};
use serde_json::{Value, json};

use crate::context::{Context, remark};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::Rows;
use crate::show::{escape, time};

/// Number of messages requested at once.
const PAGE: u32 = 1_000;

/// Shows the messages that wait for other shards: receiver, age, number of tries, and the last error.
///
/// ganger outbox
/// ganger outbox --shard 2 --to 1
/// ganger outbox reconcile 2
#[derive(Args, Debug)]
pub(crate) struct OutboxArgs {
    #[command(subcommand)]
    action: Option<OutboxCommand>,

    /// Shard whose outbox to show; the server's own if absent.
    #[arg(long, value_name = "SHARD", value_parser = read_shard, global = true)]
    shard: Option<ShardId>,

    /// Show each message that waits for this shard.
    #[arg(long, value_name = "SHARD", value_parser = read_shard)]
    to: Option<ShardId>,
}

/// Actions on the outbox.
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Resume traffic with a shard after one store went back in time, for example after restoring a backup.
    Reconcile {
        /// Name of the other shard.
        #[arg(value_parser = read_shard)]
        peer: ShardId,
    },
}

pub(crate) fn read_shard(text: &str) -> Result<ShardId, String> {
    ShardId::new(text)
        .ok_or_else(|| "a shard has 1 to 64 characters of A-Z a-z 0-9 . _ -".to_owned())
}

pub(crate) async fn run(context: &Context, args: &OutboxArgs) -> Outcome {
    let client = context.client().await?;
    let client = match &args.shard {
        Some(shard) => client.at_shard(shard),
        None => client,
    };
    match (&args.action, &args.to) {
        (Some(OutboxCommand::Reconcile { peer }), _) => reconcile(context, &client, peer).await,
        (None, Some(to)) => messages(context, &client, to).await,
        (None, None) => peers(context, &client).await,
    }
}

async fn peers(context: &Context, client: &Client) -> Outcome {
    let (shard, peers) = client.peers().await?;
    if context.is_json() {
        for peer in &peers {
            context.json(&document(&shard, peer))?;
        }
        return Ok(Exit::Done);
    }
    if peers.is_empty() {
        remark(format!("shard {shard} has exchanged nothing with others"));
        return Ok(Exit::Done);
    }
    let now = SystemTime::now();
    let mut rows = Rows::new(&[
        "from",
        "to",
        ">waiting",
        "oldest",
        ">failed tries",
        "because",
    ]);
    for peer in &peers {
        let oldest = peer.oldest_at.map(|at| time::relative(at, now));
        rows.push([
            escape::line(&shard),
            escape::line(&peer.shard),
            peer.waiting.to_string(),
            oldest.unwrap_or_default(),
            peer.tries_failed.to_string(),
            escape::line(&reason(peer)),
        ]);
    }
    context.line(rows.text())?;
    if let Some(peer) = peers.iter().find(|peer| peer.stopped.is_some()) {
        let name = escape::line(&peer.shard);
        remark(format!(
            "traffic with shard {name} has stopped: see docs/shards.md, then `ganger outbox reconcile {name} --shard {shard}`"
        ));
    }
    Ok(Exit::Done)
}

fn reason(peer: &PeerView) -> String {
    if let Some(reason) = &peer.stopped {
        return format!("stopped: {reason}");
    }
    if let Some(reason) = &peer.stopped_there {
        return format!("stopped there: {reason}");
    }
    peer.last_error.clone().unwrap_or_default()
}

fn document(shard: &str, peer: &PeerView) -> Value {
    let mut document = json!({
        "shard": shard,
        "peer": peer.shard,
        "waiting": peer.waiting,
        "tries_failed": peer.tries_failed,
        "written": peer.written,
        "confirmed": peer.confirmed,
        "received": peer.received,
    });
    let optional = [
        ("oldest_at", peer.oldest_at.map(time::exact)),
        ("last_error", peer.last_error.clone()),
        ("stopped", peer.stopped.clone()),
        ("stopped_there", peer.stopped_there.clone()),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            document[name] = value.into();
        }
    }
    document
}

async fn messages(context: &Context, client: &Client, to: &ShardId) -> Outcome {
    let mut after = 0;
    let now = SystemTime::now();
    loop {
        let page = client.outbox(to.as_str(), after, PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(Exit::Done);
        };
        after = last.number;
        let mut rows = Rows::new(&[">number", "kind", "written"]);
        for message in &page {
            if context.is_json() {
                context.json(&json!({
                    "number": message.number,
                    "kind": message.kind,
                    "at": time::exact(message.at),
                }))?;
            } else {
                rows.push([
                    message.number.to_string(),
                    escape::line(&message.kind),
                    time::relative(message.at, now),
                ]);
            }
        }
        if !context.is_json() {
            context.line(rows.text())?;
        }
    }
}

async fn reconcile(context: &Context, client: &Client, peer: &ShardId) -> Outcome {
    let done = client.reconcile(peer.as_str()).await;
    done.map_err(|error| -> Failure { context.explain(error) })?;
    remark(format!("messages with shard {peer} go through again"));
    Ok(Exit::Done)
}
