//! The nodes of a cluster and the places of its shards, as one node sees them.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::time::seconds;

/// The nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct NodeList {
    /// Name of the node that answered; absent if the server is not a node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Nodes by name; empty if the server is not a node of a cluster.
    pub nodes: Vec<Node>,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ClusterNode)]
pub struct Node {
    /// Name of the node.
    pub node: String,
    /// Address at which other nodes reach it.
    pub address: String,
    /// Version of its program.
    pub version: String,
    /// State of the node: `live` or `dead`.
    pub state: String,
    /// Whether it gives its shards away.
    pub draining: bool,
    /// Seconds since its last beat.
    #[serde(rename = "beat_age_seconds", serialize_with = "seconds")]
    #[schema(value_type = f64)]
    pub beat_age: Duration,
    /// Names of the shards that it owns.
    pub shards: Vec<String>,
}

/// The shards of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ClusterShards {
    /// Name of the node that answered; absent if the server is not a node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Shards in their order; empty if the server is not a node of a cluster.
    pub shards: Vec<ClusterShard>,
}

/// A shard of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ClusterShard {
    /// Name of the shard.
    pub shard: String,
    /// State of the shard: `owned`, `moving` (its owner gives it to another node), `unowned` (a node is about to take it
    /// over), or why no node may own it: `rewound` (it has lost commits, and an operator has not accepted that yet) or
    /// `exported`.
    pub state: String,
    /// Name of the node that owns it; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Name of the node that is to own it; absent before a node is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placed_on: Option<String>,
    /// Epoch of the shard, which each change of the owner raises; up to five seconds old.
    pub epoch: u64,
}
