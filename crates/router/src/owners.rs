//! The nodes of a cluster and the owners of its shards, as this node saw them last.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ganger_types::ShardId;
use tokio::sync::watch;

use crate::{Address, ClusterControl};

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Name of the node.
    pub name: String,
    /// Address at which other nodes reach it, `HOST:PORT`.
    pub address: String,
    /// Version of its program.
    pub version: String,
    /// Time since its last beat.
    pub silent_for: Duration,
    /// Whether it counts as alive.
    pub is_live: bool,
    /// Whether its last beat is so long ago that it may be dead: it is sent no request for a shard that it does not own
    /// yet.
    pub is_silent: bool,
    /// Whether it gives its shards away.
    pub is_draining: bool,
}

/// A shard of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterShard {
    /// Id of the shard.
    pub shard: ShardId,
    /// Name of the node that is to serve it; `None` while no node is.
    pub node: Option<String>,
    /// Name of the node that serves it; `None` while none does.
    pub owner: Option<String>,
    /// Number of times that the shard has changed hands, and been taken back.
    pub epoch: u64,
    /// Why no node may own it, such as `rewound`; `None` if one may.
    pub closed: Option<String>,
}

/// What a node knows of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    /// Name of this node.
    pub node: String,
    /// The nodes, by name.
    pub nodes: Vec<ClusterNode>,
    /// The shards, in their order.
    pub shards: Vec<ClusterShard>,
    /// Number that every change of the nodes which are to serve shards raises: of two states, the one with the larger
    /// number is newer.
    pub version: u64,
    /// Whether this node is a member and serves every shard that is placed on it.
    pub is_ready: bool,
}

impl ClusterState {
    /// Returns what is known of a shard; `None` if there is no such shard.
    pub fn shard(&self, shard: &ShardId) -> Option<&ClusterShard> {
        self.shards.iter().find(|it| it.shard == *shard)
    }

    /// Returns the shards that this node owns.
    pub fn owned(&self) -> Vec<ShardId> {
        let is_owned = |it: &&ClusterShard| it.owner.as_ref() == Some(&self.node);
        let owned = self.shards.iter().filter(is_owned);
        owned.map(|it| it.shard.clone()).collect()
    }

    /// Whether other nodes own all of these shards; one that was removed is nobody's.
    pub fn are_elsewhere(&self, shards: &[ShardId]) -> bool {
        let is_elsewhere = |it: &ClusterShard| {
            let owner = it.owner.as_ref();
            owner.is_some_and(|owner| *owner != self.node)
        };
        let mut known = shards.iter().filter_map(|shard| self.shard(shard));
        known.all(is_elsewhere)
    }

    /// Whether requests may take another way than in another state.
    fn leads_elsewhere(&self, other: &Self) -> bool {
        let places = |state: &Self| -> Vec<(String, String, bool, bool)> {
            let nodes = state.nodes.iter();
            nodes
                .map(|node| {
                    let (name, address) = (node.name.clone(), node.address.clone());
                    (name, address, node.is_live, node.is_silent)
                })
                .collect()
        };
        self.version != other.version
            || self.shards != other.shards
            || self.is_ready != other.is_ready
            || places(self) != places(other)
    }
}

/// The owners of the shards, which the server keeps current. Cheap to clone; all clones show the same.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    state: Arc<watch::Sender<Arc<ClusterState>>>,
    /// What writes orders of an operator; `None` before the server has said so.
    control: Arc<OnceLock<Arc<dyn ClusterControl>>>,
}

impl PartialEq for Owners {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Eq for Owners {}

impl Owners {
    /// Returns the state of this moment.
    pub fn now(&self) -> Arc<ClusterState> {
        Arc::clone(&self.state.borrow())
    }

    /// Changes the state that all clones show. Those who wait for a change are woken if the state differs.
    pub fn change(&self, change: impl FnOnce(&mut ClusterState)) {
        self.state.send_if_modified(|state| {
            let before = Arc::clone(state);
            change(Arc::make_mut(state));
            before.leads_elsewhere(state)
        });
    }

    /// Returns what tells of changes; another time of a beat is none.
    pub fn subscribe(&self) -> watch::Receiver<Arc<ClusterState>> {
        self.state.subscribe()
    }

    /// Lets operators move shards; the first call counts.
    pub fn set_control(&self, control: Arc<dyn ClusterControl>) {
        drop(self.control.set(control));
    }

    /// Returns what writes orders of an operator; `None` if nothing does.
    pub fn control(&self) -> Option<Arc<dyn ClusterControl>> {
        self.control.get().cloned()
    }

    /// Returns the ids of all shards.
    pub fn shards(&self) -> Vec<ShardId> {
        let state = self.now();
        state.shards.iter().map(|it| it.shard.clone()).collect()
    }

    /// Returns the address of the node that serves a shard, or is to serve it.
    pub fn address(&self, shard: &ShardId) -> Address {
        let state = self.now();
        let Some(found) = state.shards.iter().find(|it| it.shard == *shard) else {
            return Address::Unknown;
        };
        if let (Some(state), None) = (&found.closed, &found.owner) {
            return Address::Closed(format!("it is {state}: see `ganger cluster status`"));
        }
        let Some(name) = found.owner.as_ref().or(found.node.as_ref()) else {
            return Address::Away("no node owns it, and one is taking it over".to_owned());
        };
        if *name == state.node {
            return Address::Away("this node is taking it over".to_owned());
        }
        let has_owner = found.owner.is_some();
        match state.nodes.iter().find(|node| node.name == *name) {
            Some(node) if node.is_live && node.is_silent && !has_owner => Address::Away(format!(
                "it is moving to node {name}, which has not taken it yet"
            )),
            Some(node) if node.is_live => Address::At(node.address.clone()),
            _ => Address::Away(format!(
                "its node {name} is gone, and another one takes it over"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(id: &str) -> ShardId {
        ShardId::new(id).expect("it is a name")
    }

    fn state() -> ClusterState {
        let node = |name: &str, is_live| ClusterNode {
            name: name.to_owned(),
            address: format!("{name}:1"),
            version: "1".to_owned(),
            silent_for: Duration::ZERO,
            is_live,
            is_silent: false,
            is_draining: false,
        };
        let placed = |id: &str, node: &str, owner: Option<&str>| ClusterShard {
            shard: shard(id),
            node: Some(node.to_owned()),
            owner: owner.map(str::to_owned),
            epoch: 1,
            closed: None,
        };
        ClusterState {
            node: "a".to_owned(),
            nodes: vec![node("a", true), node("b", true), node("c", false)],
            shards: vec![
                placed("1", "a", Some("b")),
                placed("2", "b", None),
                placed("3", "c", Some("c")),
                placed("4", "a", None),
            ],
            version: 1,
            is_ready: true,
        }
    }

    #[test]
    fn a_node_that_hands_over_waits_for_its_own_shards_only() {
        let placed = |id: &str, owner: Option<&str>| ClusterShard {
            shard: shard(id),
            node: owner.map(str::to_owned),
            owner: owner.map(str::to_owned),
            epoch: 1,
            closed: None,
        };
        let mut state = ClusterState {
            shards: vec![
                placed("1", Some("a")),
                placed("2", None),
                placed("3", Some("b")),
            ],
            ..state()
        };
        state.node = "a".to_owned();
        let ours = state.owned();
        assert_eq!(ours, [shard("1")], "nobody owns shard 2");
        assert!(!state.are_elsewhere(&ours));
        state.shards[0].owner = None;
        assert!(
            !state.are_elsewhere(&ours),
            "its new node does not serve it yet"
        );
        state.shards[0].owner = Some("b".to_owned());
        assert!(state.are_elsewhere(&ours));
        state.shards.clear();
        assert!(state.are_elsewhere(&ours));
    }

    #[test]
    fn a_shard_is_at_its_owner_or_at_the_node_that_is_to_serve_it() {
        let owners = Owners::default();
        assert_eq!(owners.address(&shard("1")), Address::Unknown);
        owners.clone().change(|now| *now = state());
        assert_eq!(owners.address(&shard("1")), Address::At("b:1".to_owned()));
        assert_eq!(owners.address(&shard("2")), Address::At("b:1".to_owned()));
        for away in ["3", "4"] {
            let found = owners.address(&shard(away));
            assert!(matches!(found, Address::Away(_)), "{away}: {found:?}");
        }
        owners.change(|now| now.nodes[1].is_silent = true);
        assert_eq!(
            owners.address(&shard("1")),
            Address::At("b:1".to_owned()),
            "it owns the shard"
        );
        let found = owners.address(&shard("2"));
        assert!(matches!(found, Address::Away(_)), "{found:?}");
        assert_eq!(owners.shards().len(), 4);
        owners.change(|now| {
            for shard in &mut now.shards {
                shard.closed = Some("rewound".to_owned());
            }
        });
        let found = owners.address(&shard("2"));
        assert!(matches!(found, Address::Closed(_)), "{found:?}");
        // What is known of that is older than the owner.
        assert_eq!(owners.address(&shard("1")), Address::At("b:1".to_owned()));
    }
}
