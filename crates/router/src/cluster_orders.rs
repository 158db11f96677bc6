//! What an operator orders of a cluster: that a node gives its shards away, or that a shard moves.

use std::fmt::Debug;
use std::sync::Arc;

use ganger_types::ShardId;

use crate::{ClusterState, Owners, Router};

/// Writes orders into the control tables of a cluster. The functions wait for the database.
pub trait ClusterControl: Debug + Send + Sync {
    /// Makes a node give its shards away, or take shards again. Returns whether there is such a node.
    ///
    /// # Errors
    /// If the database cannot be reached: the reason.
    fn set_draining(&self, node: &str, is_draining: bool) -> Result<bool, String>;

    /// Places a shard on a node, which takes it over from its owner. Returns whether there are such a shard and node.
    ///
    /// # Errors
    /// If the database cannot be reached: the reason.
    fn move_shard(&self, shard: &ShardId, node: &str) -> Result<bool, String>;
}

/// Why an order was not given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The server is not a node of a cluster.
    #[error(
        "the server is not a node of a cluster: shards move only between servers that run with --cluster"
    )]
    Alone,
    /// There is no such node.
    #[error("the cluster has no node {0:?}: `ganger nodes` lists its nodes")]
    NoNode(String),
    /// There is no such shard.
    #[error("the cluster has no shard {0}: `ganger shards` lists its shards")]
    NoShard(ShardId),
    /// The node takes no shards.
    #[error(
        "node {0} is dead, or gives its shards away: `ganger nodes` shows which nodes take shards"
    )]
    TakesNone(String),
    /// The control tables could not be changed.
    #[error("the order could not be written: {0}")]
    Failed(String),
}

/// Number of characters of a name that an error repeats.
const SHOWN_MAX: usize = 80;

impl OrderError {
    fn no_node(node: &str) -> Self {
        Self::NoNode(node.chars().take(SHOWN_MAX).collect())
    }

    /// The stable code of the refusal; see docs/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Alone | Self::NoNode(_) => "node_not_found",
            Self::NoShard(_) => "unknown_shard",
            Self::TakesNone(_) => "node_takes_no_shards",
            Self::Failed(_) => "unavailable",
        }
    }
}

/// Makes a node give its shards away, or take shards again. It begins with the node's next beat.
///
/// # Errors
/// See [`OrderError`].
pub async fn set_draining(
    router: Option<&Router>,
    node: &str,
    is_draining: bool,
) -> Result<(), OrderError> {
    let (owners, control) = control(router)?;
    let state = owners.now();
    let no_node = || OrderError::no_node(node);
    if !state.nodes.iter().any(|known| known.name == node) {
        return Err(no_node());
    }
    let name = node.to_owned();
    let is_there = order(move || control.set_draining(&name, is_draining)).await?;
    is_there.then_some(()).ok_or_else(no_node)
}

/// Moves a shard to a node. It begins with the next beat of the shard's owner.
///
/// # Errors
/// See [`OrderError`].
pub async fn move_shard(
    router: Option<&Router>,
    shard: &ShardId,
    node: &str,
) -> Result<(), OrderError> {
    let (owners, control) = control(router)?;
    check_move(&owners.now(), shard, node)?;
    let (to, moved) = (node.to_owned(), shard.clone());
    let is_there = order(move || control.move_shard(&moved, &to)).await?;
    let takes_none = || OrderError::TakesNone(node.to_owned());
    is_there.then_some(()).ok_or_else(takes_none)
}

fn check_move(state: &ClusterState, shard: &ShardId, node: &str) -> Result<(), OrderError> {
    if state.shard(shard).is_none() {
        return Err(OrderError::NoShard(shard.clone()));
    }
    let Some(known) = state.nodes.iter().find(|known| known.name == node) else {
        return Err(OrderError::no_node(node));
    };
    if !known.is_live || known.is_draining {
        return Err(OrderError::TakesNone(node.to_owned()));
    }
    Ok(())
}

fn control(router: Option<&Router>) -> Result<(&Owners, Arc<dyn ClusterControl>), OrderError> {
    let owners = router.and_then(|router| router.topology().owners());
    let owners = owners.ok_or(OrderError::Alone)?;
    let control = owners.control().ok_or(OrderError::Alone)?;
    Ok((owners, control))
}

/// Gives an order on a thread that may wait.
async fn order(
    give: impl FnOnce() -> Result<bool, String> + Send + 'static,
) -> Result<bool, OrderError> {
    let given = tokio::task::spawn_blocking(give).await;
    let given = given.map_err(|error| OrderError::Failed(error.to_string()))?;
    given.map_err(OrderError::Failed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{ClusterNode, ClusterShard};

    #[test]
    fn a_shard_moves_to_a_node_that_takes_shards() {
        let node = |name: &str, is_live, is_draining| ClusterNode {
            name: name.to_owned(),
            address: String::new(),
            version: String::new(),
            silent_for: Duration::ZERO,
            is_live,
            is_silent: false,
            is_draining,
        };
        let shard = ShardId::default();
        let state = ClusterState {
            nodes: vec![
                node("a", true, false),
                node("b", true, true),
                node("c", false, false),
            ],
            shards: vec![ClusterShard {
                shard: shard.clone(),
                node: None,
                owner: None,
                epoch: 0,
                closed: None,
            }],
            ..ClusterState::default()
        };
        let other = ShardId::new("other").expect("a name");
        let refused = |shard, node| check_move(&state, shard, node).map_err(|error| error.code());
        assert_eq!(refused(&shard, "a"), Ok(()));
        assert_eq!(refused(&shard, "b"), Err("node_takes_no_shards"));
        assert_eq!(refused(&shard, "c"), Err("node_takes_no_shards"));
        assert_eq!(refused(&shard, "d"), Err("node_not_found"));
        assert_eq!(refused(&other, "a"), Err("unknown_shard"));
        let long = check_move(&state, &shard, &"x".repeat(1_000_000)).expect_err("no such node");
        assert!(long.to_string().len() < 200, "{long}");
    }
}
