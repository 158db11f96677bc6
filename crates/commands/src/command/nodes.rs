//! `ganger nodes` and `ganger shards`: the nodes of a cluster, and which of them owns which shard.

use ganger_client::{ClusterShards, NodeList};

use crate::context::Context;
use crate::exit::{Exit, Outcome};
use crate::show::table::Rows;
use crate::show::{escape, time};

/// What is shown of a server that is not a node of a cluster.
const ALONE: &str = "the server is not a node of a cluster";

pub(crate) async fn nodes(context: &Context) -> Outcome {
    let list = context.client().await?.cluster_nodes().await?;
    context.either(&list, node_table(&list))?;
    Ok(Exit::Done)
}

pub(crate) async fn shards(context: &Context) -> Outcome {
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
