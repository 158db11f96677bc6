//! Shards in PostgreSQL: the cluster of the database, and its shards.

use std::net::SocketAddr;
use std::sync::Arc;

use ganger_router::{ClusterControl, ClusterShard, Owners, Topology};
use ganger_shard::{Clock, Handle, Hooks, Settings, Shard};
use ganger_store::StoreError;
use ganger_store_postgres::{
    Database, Directory, Formats, NodeName, PostgresStore, move_shard, set_draining,
};
use ganger_types::ShardId;

use crate::config::{Config, ConfigError};
use crate::error::StartError;
use crate::node::NodeCounters;
use crate::node::marks::Marks;

/// Bytes of payloads and results that each shard keeps in memory, so that few are read from the database.
const BLOB_CACHE_BYTES: usize = 256 << 20;

/// The database with the shards of this process.
#[derive(Clone)]
pub(crate) struct Cluster {
    database: Arc<Database>,
    directory: Arc<Directory>,
    node: String,
    member: Option<Arc<Membership>>,
}

/// The part of a process that is one of several nodes.
pub(crate) struct Membership {
    pub(crate) name: NodeName,
    /// The shard of requests that name none: the first of the cluster.
    pub(crate) home: ShardId,
    pub(crate) owners: Owners,
    pub(crate) counters: Arc<NodeCounters>,
    /// What is known of the confirmed commits of all shards.
    pub(crate) marks: Arc<Marks>,
}

/// Connects to the cluster of the database, and adds its shards to the settings. `None` if the store is a file.
pub(crate) async fn connect(
    config: &mut Config,
    addr: SocketAddr,
) -> Result<Option<Cluster>, StartError> {
    let Some(settings) = config.database()? else {
        return Ok(None);
    };
    let database = Database::new(settings).map_err(|error| ConfigError {
        place: "store".to_owned(),
        reason: error.to_string(),
    })?;
    let read = Arc::clone(&database);
    let directory = tokio::task::spawn_blocking(move || Directory::read(&read)).await;
    let directory = directory.map_err(|error| StartError::System {
        doing: "read the directory of the cluster",
        reason: error.to_string(),
    })??;
    let wrong = |reason: String| {
        StartError::Config(ConfigError {
            place: "cluster".to_owned(),
            reason,
        })
    };
    let found = &directory.name;
    if let Some(wanted) = config
        .postgres
        .cluster
        .as_ref()
        .filter(|name| *name != found)
    {
        return Err(wrong(format!(
            "the database has the cluster {found:?}, not {wanted:?}: give the address of the other database, or another name"
        )));
    }
    if directory.shards.is_empty() {
        return Err(wrong(format!(
            "the cluster {found:?} has no shards: add one with `ganger cluster add-shard`"
        )));
    }
    config.shards = directory
        .shards
        .iter()
        .map(|shard| shard.id.clone())
        .collect();
    let node = config.postgres.node.clone().unwrap_or_else(machine);
    let member = match config.postgres.cluster {
        None => None,
        Some(_) => Some(Arc::new(join(config, &database, addr, &node)?)),
    };
    tracing::info!(cluster = %found, identity = %directory.identity, node, shards = config.shards.len(), "the cluster of the database");
    Ok(Some(Cluster {
        database,
        directory: Arc::new(directory),
        node,
        member,
    }))
}

/// Prepares a process that is one of several nodes: its shards come and go, and so do the addresses of the others.
fn join(
    config: &mut Config,
    database: &Arc<Database>,
    addr: SocketAddr,
    node: &str,
) -> Result<Membership, StartError> {
    let wrong = |place: &str, reason: &str| {
        StartError::Config(ConfigError {
            place: place.to_owned(),
            reason: reason.to_owned(),
        })
    };
    if !config.topology.is_alone() {
        return Err(wrong(
            "topology",
            "is not possible with cluster: the cluster says where its shards are",
        ));
    }
    let address = match &config.postgres.advertise {
        Some(address) => address.clone(),
        None if addr.ip().is_unspecified() => {
            let reason = "is missing: addr listens on all addresses, so name the one at which other nodes reach this one";
            return Err(wrong("advertise", reason));
        }
        None => addr.to_string(),
    };
    let owners = Owners::default();
    // Before the first beat the shards are known, and nobody's.
    let shards = config.shards.iter().map(|shard| ClusterShard {
        shard: shard.clone(),
        node: None,
        owner: None,
        epoch: 0,
        closed: None,
    });
    owners.change(|state| {
        node.clone_into(&mut state.node);
        state.shards = shards.collect();
    });
    owners.set_control(Arc::new(Control(Arc::clone(database))));
    config.topology = Topology::Cluster(owners.clone());
    Ok(Membership {
        name: NodeName {
            node: node.to_owned(),
            incarnation: NodeName::new_incarnation()?,
            address,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            formats: Formats::OWN,
            lease: config.postgres.ownership_lease,
        },
        home: config.shards[0].clone(),
        owners,
        counters: Arc::default(),
        marks: Arc::new(Marks::new(database.newest())),
    })
}

/// Writes the orders of an operator.
struct Control(Arc<Database>);

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Control")
    }
}

impl ClusterControl for Control {
    fn set_draining(&self, node: &str, is_draining: bool) -> Result<bool, String> {
        let set = set_draining(&self.0, node, is_draining);
        set.map_err(|error| error.to_string())
    }

    fn move_shard(&self, shard: &ShardId, node: &str) -> Result<bool, String> {
        let moved = move_shard(&self.0, shard, node);
        moved.map_err(|error| error.to_string())
    }
}

/// Returns the name of the machine.
fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.map(|name| name.trim().to_owned()).unwrap_or_default();
    if name.is_empty() {
        "node".to_owned()
    } else {
        name
    }
}

impl Cluster {
    /// Returns the part of this process as one of several nodes; `None` if it serves all shards alone.
    pub(crate) fn member(&self) -> Option<&Arc<Membership>> {
        self.member.as_ref()
    }

    /// Returns the database with the shards.
    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Takes a shard over and starts it.
    pub(crate) fn start(
        &self,
        shard: &ShardId,
        settings: Settings,
        clock: Arc<dyn Clock>,
        hooks: Hooks,
    ) -> Result<Handle, StoreError> {
        let number = match self.directory.number(shard) {
            Some(number) => number,
            // It has been added since this process started.
            None => {
                let now = Directory::read(&self.database)?;
                now.number(shard).ok_or_else(|| StoreError::Io {
                    path: shard.to_string(),
                    doing: "opened",
                    reason: "the cluster has no such shard".to_owned(),
                })?
            }
        };
        let store = PostgresStore::new(&self.database, number, shard, &self.node);
        let store = match &self.member {
            Some(member) => store.with_known(&member.marks.of(shard)),
            None => store,
        };
        let settings = Settings {
            blob_cache_bytes: BLOB_CACHE_BYTES,
            ..settings
        };
        Shard::start(store, settings, clock, hooks)
    }
}
