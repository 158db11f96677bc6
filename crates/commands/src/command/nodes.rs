//! `ganger nodes` and `ganger shards`: the nodes of a cluster, and which of them owns which shard.

use clap::{Args, Subcommand};
use ganger_client::{ClusterShards, NodeList};

use crate::context::{Context, remark};
use crate::exit::{Exit, Outcome};
use crate::show::table::Rows;
use crate::show::{escape, time};

/// What is shown of a server that is not a node of a cluster.
const ALONE: &str = "the server is not a node of a cluster";

/// Arguments of `ganger nodes`.
#[derive(Args, Debug)]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    command: Option<NodesCommand>,
}

/// What can be ordered of a node.
#[derive(Debug, Subcommand)]
enum NodesCommand {
    /// Make a node hand its shards over to the other nodes; it gets none until this is undone or it starts again.
    Drain {
        /// Name of the node.
        node: String,
        /// Let the node have shards again.
        #[arg(long)]
        undo: bool,
    },
}

/// Arguments of `ganger shards`.
#[derive(Args, Debug)]
pub(crate) struct ShardsArgs {
    #[command(subcommand)]
    command: Option<ShardsCommand>,
}

/// What can be ordered of a shard.
#[derive(Debug, Subcommand)]
enum ShardsCommand {
    /// Move a shard to a node. It stays there as long as the node lives, unless another one has at least two shards less.
    Move {
        /// Name of the shard.
        shard: String,
        /// Name of the node.
        node: String,
    },
    /// Open shards again that were closed because they have lost commits: the same as `ganger cluster accept-rewind`.
    #[cfg(feature = "postgres")]
    AcceptRewind(super::cluster::AcceptRewindArgs),
}

pub(crate) async fn nodes(context: &Context, args: NodesArgs) -> Outcome {
    let client = context.client().await?;
    match args.command {
        Some(NodesCommand::Drain { node, undo: false }) => {
            client.drain_node(&node).await?;
            remark(format!(
                "node {node} hands its shards over: `ganger shards` shows where they are"
            ));
            return Ok(Exit::Done);
        }
        Some(NodesCommand::Drain { node, undo: true }) => {
            client.resume_node(&node).await?;
            remark(format!("node {node} takes shards again"));
            return Ok(Exit::Done);
        }
        None => {}
    }
    let list = client.cluster_nodes().await?;
    context.either(&list, node_table(&list))?;
    Ok(Exit::Done)
}

pub(crate) async fn shards(context: &Context, args: ShardsArgs) -> Outcome {
    match args.command {
        Some(ShardsCommand::Move { shard, node }) => {
            context.client().await?.move_shard(&shard, &node).await?;
            remark(format!(
                "shard {shard} moves to node {node}: `ganger shards` shows when it is there"
            ));
            return Ok(Exit::Done);
        }
        #[cfg(feature = "postgres")]
        Some(ShardsCommand::AcceptRewind(args)) => return super::cluster::accept(&args),
        None => {}
    }
    let list = context.client().await?.cluster_shards().await?;
    context.either(&list, shard_table(&list))?;
    Ok(Exit::Done)
}

fn node_table(list: &NodeList) -> String {
    if list.node.is_none() {
        return ALONE.to_owned();
    }
    let mut rows = Rows::new(&["node", "state", "address", ">beat", "version", "shards"]);
    for node in &list.nodes {
        let state = if node.draining {
            format!("{}, draining", node.state)
        } else {
            node.state.clone()
        };
        rows.push([
            escape::line(&node.node),
            escape::line(&state),
            escape::line(&node.address),
            time::span(node.beat_age),
            escape::line(&node.version),
            escape::line(&node.shards.join(", ")),
        ]);
    }
    rows.text()
}

fn shard_table(list: &ClusterShards) -> String {
    if list.node.is_none() {
        return ALONE.to_owned();
    }
    let mut rows = Rows::new(&["shard", "state", "owner", "placed on", ">epoch"]);
    let name = |name: &Option<String>| name.as_deref().map_or_else(|| "-".to_owned(), escape::line);
    for shard in &list.shards {
        rows.push([
            escape::line(&shard.shard),
            escape::line(&shard.state),
            name(&shard.owner),
            name(&shard.placed_on),
            shard.epoch.to_string(),
        ]);
    }
    rows.text()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ganger_client::{ClusterShard, Node};

    use super::*;

    #[test]
    fn nodes_and_shards_are_shown_in_tables() {
        let nodes = NodeList {
            node: Some("a".to_owned()),
            nodes: vec![Node {
                node: "b".to_owned(),
                address: "b.example:3733".to_owned(),
                version: "0.1.0".to_owned(),
                state: "live".to_owned(),
                draining: true,
                beat_age: Duration::from_secs(1),
                shards: vec!["1".to_owned(), "3".to_owned()],
            }],
        };
        let shown = node_table(&nodes);
        assert!(shown.contains("live, draining"), "{shown}");
        assert!(shown.contains("1, 3"), "{shown}");
        let shards = ClusterShards {
            node: Some("a".to_owned()),
            shards: vec![ClusterShard {
                shard: "2".to_owned(),
                state: "unowned".to_owned(),
                owner: None,
                placed_on: Some("a".to_owned()),
                epoch: 4,
            }],
        };
        let shown = shard_table(&shards);
        assert!(shown.contains("unowned"), "{shown}");
        assert_eq!(node_table(&NodeList::default()), ALONE);
        assert_eq!(shard_table(&ClusterShards::default()), ALONE);
    }
}
