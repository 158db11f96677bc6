//! Finds the shard of a request and reaches it: in this process, or through a peer.
//!
//! `topology` has the addresses of shards; `reach` calls one, wherever it is; `submit` submits jobs to several of
//! them, all or none; `forward` forwards a request; `delivery` delivers their messages until they are confirmed;
//! `service` is the service that peers call; `server_document` describes the server; `cluster_orders` moves shards.

#![forbid(unsafe_code)]

mod cluster_documents;
mod cluster_orders;
mod delivery;
mod error;
mod forward;
mod graphs;
mod link;
mod owners;
mod places;
mod reach;
mod server_document;
mod service;
mod status;
mod submit;
mod topology;

use std::sync::Arc;
use std::time::Duration;

use ganger_shard::{Handle, ShardSet};
use ganger_types::ShardId;

pub use cluster_documents::{nodes_document, shards_document};
pub use cluster_orders::{ClusterControl, OrderError, move_shard, set_draining};
pub use delivery::PeerState;
pub use error::RouteError;
pub use graphs::{
    BOXES_MAX, BOXES_MIN, DEPTH_MAX, GraphError, GraphRow, GraphRows, GraphState, Graphs,
    LayoutRequest, OPEN_MAX, position_text, read_position,
};
pub use link::{Connector, Link, PlainConnector, with_timeouts};
pub use owners::{ClusterNode, ClusterShard, ClusterState, Owners};
pub use places::{places_text, read_places};
pub use server_document::server_document;
pub use submit::{Busy, Submitted};
pub use topology::{Address, Topology, TopologyError};

use delivery::Deliveries;
use link::Links;
use reach::ShardClient;

/// Longest time until a shard is reported as unreachable (`rel P4`).
pub const REACH_WITHIN: Duration = Duration::from_secs(5);

/// Finds shards. Cheap to clone.
#[derive(Clone)]
pub struct Router(Arc<Inner>);

struct Inner {
    home: ShardId,
    here: ShardSet,
    topology: Topology,
    links: Links,
    deliveries: Deliveries,
    graphs: Arc<graphs::Cache>,
}

impl Router {
    /// Starts a router over the shards of this process; the first, or the vacant one, is the default for requests that
    /// name none. Starts the delivery of messages between shards. Call it within a Tokio runtime.
    ///
    /// # Panics
    /// Without any shard, unless the set was made empty.
    pub fn start(
        shards: impl Into<ShardSet>,
        topology: Topology,
        connector: Arc<dyn Connector>,
    ) -> Self {
        let here = shards.into();
        let home = here.first().id().clone();
        let router = Self(Arc::new(Inner {
            home,
            here,
            topology,
            links: Links::new(connector),
            deliveries: Deliveries::default(),
            graphs: Arc::default(),
        }));
        for handle in &*router.0.here.now() {
            router.start_deliveries(handle);
        }
        router
    }

    /// Adds a shard that this process serves from now on, and starts the delivery of its messages.
    pub fn add(&self, handle: &Handle) {
        self.forget_deliveries(handle.id());
        self.0.here.put(handle.clone());
        self.start_deliveries(handle);
    }

    /// Removes a shard that this process does not serve any more; returns it, if it was here.
    pub fn remove(&self, shard: &ShardId) -> Option<Handle> {
        self.forget_deliveries(shard);
        self.0.here.remove(shard)
    }

    /// Returns the id of the default shard, for requests that name none.
    pub fn home(&self) -> &ShardId {
        &self.0.home
    }

    /// Returns the shards of this process.
    pub fn here(&self) -> Arc<[Handle]> {
        self.0.here.now()
    }

    /// Returns a shard of this process; `None` if it is not here.
    pub fn handle(&self, shard: &ShardId) -> Option<Handle> {
        self.0.here.get(shard)
    }

    /// Whether there is such a shard, here or on another server.
    pub fn knows(&self, shard: &ShardId) -> bool {
        self.handle(shard).is_some() || self.0.topology.address(shard) != Address::Unknown
    }

    /// Returns the topology that the router was started with.
    pub fn topology(&self) -> &Topology {
        &self.0.topology
    }

    /// Returns all shards known by name: those of this process, and those listed.
    pub fn known(&self) -> Vec<ShardId> {
        let here = self.here();
        let mut known: Vec<_> = here.iter().map(|handle| handle.id().clone()).collect();
        known.extend(self.0.topology.listed());
        known.sort();
        known.dedup();
        known
    }

    /// Returns the connection to the server that owns a shard.
    ///
    /// # Errors
    /// If there is no such shard, nobody owns it at the moment, or its address cannot be used.
    pub fn link(&self, shard: &ShardId) -> Result<Link, RouteError> {
        self.0.links.link(shard, &self.address(shard)?)
    }

    /// Makes a connection of its own to the server of a shard: for one exchange that lasts long, and whose reader may be
    /// slow, so that others are not disturbed.
    ///
    /// # Errors
    /// If the shard is unknown, or nobody serves it.
    pub fn link_alone(&self, shard: &ShardId) -> Result<Link, RouteError> {
        self.0.links.make(shard, &self.address(shard)?)
    }

    /// Makes a connection to the node of a cluster at an address, which need not serve a shard.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn link_at(&self, address: &str) -> Result<Link, RouteError> {
        self.0.links.make(self.home(), address)
    }

    fn address(&self, shard: &ShardId) -> Result<String, RouteError> {
        match self.0.topology.address(shard) {
            Address::At(address) => Ok(address),
            Address::Unknown => Err(self.unknown(shard)),
            Address::Away(reason) | Address::Closed(reason) => Err(RouteError::Unreachable {
                shard: shard.clone(),
                reason,
            }),
        }
    }

    /// Returns the error for an unknown shard.
    pub fn unknown(&self, shard: &ShardId) -> RouteError {
        RouteError::Unknown {
            shard: shard.clone(),
            known: self.known(),
        }
    }

    fn reach(&self, shard: &ShardId) -> Result<ShardClient, RouteError> {
        match self.handle(shard) {
            Some(handle) => Ok(ShardClient::Here(handle)),
            None => {
                let link = self.link(shard)?;
                Ok(ShardClient::There(shard.clone(), reach::client(link)))
            }
        }
    }
}
