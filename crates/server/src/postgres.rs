//! Shards in PostgreSQL: the cluster of the database, and its shards.

use std::sync::Arc;

use ganger_shard::{Clock, Handle, Hooks, Settings, Shard};
use ganger_store::StoreError;
use ganger_store_postgres::{Database, Directory, PostgresStore};
use ganger_types::ShardId;

use crate::config::{Config, ConfigError};
use crate::error::StartError;

/// Bytes of payloads and results that each shard keeps in memory, so that few are read from the database.
const BLOB_CACHE_BYTES: usize = 256 << 20;

/// The database with the shards of this process.
#[derive(Clone)]
pub(crate) struct Cluster {
    database: Arc<Database>,
    directory: Arc<Directory>,
    node: String,
}

/// Connects to the cluster of the database, and adds its shards to the settings. `None` if the store is a file.
pub(crate) async fn connect(config: &mut Config) -> Result<Option<Cluster>, StartError> {
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
    tracing::info!(cluster = %found, identity = %directory.identity, node, shards = config.shards.len(), "the cluster of the database");
    Ok(Some(Cluster {
        database,
        directory: Arc::new(directory),
        node,
    }))
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
    /// Takes a shard over and starts it.
    pub(crate) fn start(
        &self,
        shard: &ShardId,
        settings: Settings,
        clock: Arc<dyn Clock>,
        hooks: Hooks,
    ) -> Result<Handle, StoreError> {
        let entry = self
            .directory
            .shards
            .iter()
            .find(|entry| entry.id == *shard);
        let number = entry.expect("the shards come from the directory").number;
        let store = PostgresStore::new(&self.database, number, shard, &self.node);
        let settings = Settings {
            blob_cache_bytes: BLOB_CACHE_BYTES,
            ..settings
        };
        Shard::start(store, settings, clock, hooks)
    }
}
