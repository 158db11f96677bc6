//! Finds the shard of a request and reaches it: in this process, or through a peer.
//!
//! `topology` has the addresses of shards; `reach` calls one, wherever it is; `submit` submits jobs to several of
//! them, all or none; `forward` forwards a request; `delivery` delivers their messages until they are confirmed;
//! `service` is the service that peers call; `server_document` describes the server.

#![forbid(unsafe_code)]

mod delivery;
mod error;
mod forward;
mod graphs;
mod link;
mod places;
mod reach;
mod server_document;
mod service;
mod status;
mod submit;
mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ganger_shard::Handle;
use ganger_types::ShardId;

pub use delivery::PeerState;
pub use error::RouteError;
pub use graphs::{
    BOXES_MAX, BOXES_MIN, DEPTH_MAX, GraphError, GraphRow, GraphRows, GraphState, Graphs,
    LayoutRequest, OPEN_MAX, position_text, read_position,
};
pub use link::{Connector, Link, PlainConnector, with_timeouts};
pub use places::{places_text, read_places};
pub use server_document::server_document;
pub use submit::{Busy, Submitted};
pub use topology::{Topology, TopologyError};

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
    here: BTreeMap<ShardId, Handle>,
    topology: Topology,
    links: Links,
    deliveries: Deliveries,
    graphs: Arc<graphs::Cache>,
}

impl Router {
    /// Starts a router over the shards of this process; the first is the default for requests that name none. Starts
    /// the delivery of messages between shards. Call it within a Tokio runtime.
    ///
    /// # Panics
    /// Without any shard.
    pub fn start(shards: Vec<Handle>, topology: Topology, connector: Arc<dyn Connector>) -> Self {
        let home = shards.first().expect("a server has a shard").id().clone();
        let here: BTreeMap<_, _> = shards
            .into_iter()
            .map(|handle| (handle.id().clone(), handle))
            .collect();
        let router = Self(Arc::new(Inner {
            home,
            here,
            topology,
            links: Links::new(connector),
            deliveries: Deliveries::default(),
            graphs: Arc::default(),
        }));
        router.start_deliveries();
        router
    }

    /// Returns the default shard, for requests that name none.
    pub fn home(&self) -> &Handle {
        &self.0.here[&self.0.home]
    }

    /// Returns the shards of this process, in order of their ids.
    pub fn here(&self) -> impl Iterator<Item = &Handle> {
        self.0.here.values()
    }

    /// Returns a shard of this process; `None` if it is not here.
    pub fn handle(&self, shard: &ShardId) -> Option<&Handle> {
        self.0.here.get(shard)
    }

    /// Returns the topology that the router was started with.
    pub fn topology(&self) -> &Topology {
        &self.0.topology
    }

    /// Returns all shards known by name: those of this process, and those listed.
    pub fn known(&self) -> Vec<ShardId> {
        let mut known: Vec<_> = self.0.here.keys().cloned().collect();
        known.extend(self.0.topology.listed());
        known.sort();
        known.dedup();
        known
    }

    /// Returns the connection to the server that owns a shard.
    ///
    /// # Errors
    /// If there is no such shard, or its address cannot be used.
    pub fn link(&self, shard: &ShardId) -> Result<Link, RouteError> {
        let address = self
            .0
            .topology
            .address(shard)
            .ok_or_else(|| self.unknown(shard))?;
        self.0.links.link(shard, &address)
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
            Some(handle) => Ok(ShardClient::Here(handle.clone())),
            None => {
                let link = self.link(shard)?;
                Ok(ShardClient::There(shard.clone(), reach::client(link)))
            }
        }
    }
}
