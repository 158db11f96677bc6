//! The nodes and shards of a cluster: between messages and the documents of HTTP and the SDK.

use std::time::Duration;

use ganger_document::view::cluster::{ClusterShard, ClusterShards, Node, NodeList};

use super::{ms, non_empty};
use crate::v1;

impl From<NodeList> for v1::ListNodesReply {
    fn from(list: NodeList) -> Self {
        Self {
            node: list.node.unwrap_or_default(),
            nodes: list.nodes.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::ListNodesReply> for NodeList {
    fn from(wire: v1::ListNodesReply) -> Self {
        Self {
            node: non_empty(wire.node),
            nodes: wire.nodes.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Node> for v1::ClusterNode {
    fn from(node: Node) -> Self {
        Self {
            node: node.node,
            address: node.address,
            version: node.version,
            state: node.state,
            draining: node.draining,
            beat_age_ms: ms(node.beat_age),
            shards: node.shards,
        }
    }
}

impl From<v1::ClusterNode> for Node {
    fn from(wire: v1::ClusterNode) -> Self {
        Self {
            node: wire.node,
            address: wire.address,
            version: wire.version,
            state: wire.state,
            draining: wire.draining,
            beat_age: Duration::from_millis(wire.beat_age_ms),
            shards: wire.shards,
        }
    }
}

impl From<ClusterShards> for v1::ListShardsReply {
    fn from(list: ClusterShards) -> Self {
        Self {
            node: list.node.unwrap_or_default(),
            shards: list.shards.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::ListShardsReply> for ClusterShards {
    fn from(wire: v1::ListShardsReply) -> Self {
        Self {
            node: non_empty(wire.node),
            shards: wire.shards.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ClusterShard> for v1::ClusterShard {
    fn from(shard: ClusterShard) -> Self {
        Self {
            shard: shard.shard,
            state: shard.state,
            owner: shard.owner.unwrap_or_default(),
            placed_on: shard.placed_on.unwrap_or_default(),
            epoch: shard.epoch,
        }
    }
}

impl From<v1::ClusterShard> for ClusterShard {
    fn from(wire: v1::ClusterShard) -> Self {
        Self {
            shard: wire.shard,
            state: wire.state,
            owner: non_empty(wire.owner),
            placed_on: non_empty(wire.placed_on),
            epoch: wire.epoch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_shards_come_back_from_their_messages() {
        let nodes = NodeList {
            node: Some("a".to_owned()),
            nodes: vec![Node {
                node: "b".to_owned(),
                address: "b:1".to_owned(),
                version: "1".to_owned(),
                state: "dead".to_owned(),
                draining: true,
                beat_age: Duration::from_millis(1_500),
                shards: vec!["1".to_owned()],
            }],
        };
        let wire = v1::ListNodesReply::from(nodes.clone());
        assert_eq!(NodeList::from(wire), nodes);
        let shards = ClusterShards {
            node: None,
            shards: vec![ClusterShard {
                shard: "1".to_owned(),
                state: "unowned".to_owned(),
                owner: None,
                placed_on: Some("a".to_owned()),
                epoch: 7,
            }],
        };
        let wire = v1::ListShardsReply::from(shards.clone());
        assert_eq!(ClusterShards::from(wire), shards);
    }
}
