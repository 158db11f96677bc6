//! The documents about the nodes of a cluster and its shards. HTTP and gRPC answer with them.

use ganger_document::view::cluster::{ClusterShards, Node, NodeList};
use ganger_types::ShardId;

use crate::{ClusterNode, ClusterShard, ClusterState, Router};

/// Returns the nodes of the cluster; an empty list if the server is not one of its nodes.
pub fn nodes_document(router: Option<&Router>) -> NodeList {
    let Some(owners) = router.and_then(|router| router.topology().owners()) else {
        return NodeList::default();
    };
    let state = owners.now();
    NodeList {
        node: Some(state.node.clone()),
        nodes: state.nodes.iter().map(|node| one(node, &state)).collect(),
    }
}

fn one(node: &ClusterNode, state: &ClusterState) -> Node {
    let owned = state.shards.iter();
    let owned = owned.filter(|shard| shard.owner.as_ref() == Some(&node.name));
    Node {
        node: node.name.clone(),
        address: node.address.clone(),
        version: node.version.clone(),
        state: if node.is_live { "live" } else { "dead" }.to_owned(),
        draining: node.is_draining,
        beat_age: node.silent_for,
        shards: owned.map(|shard| shard.shard.to_string()).collect(),
    }
}

/// Returns the shards of the cluster; an empty list if the server is not one of its nodes.
pub fn shards_document(router: Option<&Router>) -> ClusterShards {
    let Some(owners) = router.and_then(|router| router.topology().owners()) else {
        return ClusterShards::default();
    };
    let state = owners.now();
    ClusterShards {
        node: Some(state.node.clone()),
        shards: state.shards.iter().map(placed).collect(),
    }
}

fn placed(shard: &ClusterShard) -> ganger_document::view::cluster::ClusterShard {
    let state = match (&shard.owner, &shard.closed) {
        (None, Some(closed)) => closed,
        (None, None) => "unowned",
        (owner, _) if *owner == shard.node => "owned",
        (Some(_), _) => "moving",
    };
    ganger_document::view::cluster::ClusterShard {
        shard: ShardId::to_string(&shard.shard),
        state: state.to_owned(),
        owner: shard.owner.clone(),
        placed_on: shard.node.clone(),
        epoch: shard.epoch,
    }
}
