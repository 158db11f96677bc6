//! The document about a server: its shards, how busy they are, and its settings. HTTP and gRPC answer with it.

use std::collections::BTreeMap;
use std::time::Instant;

use ganger_document::view::server::{Server, ServerShard};
use ganger_shard::{Handle, Health};

use crate::Router;

/// Returns the document about a server that has these shards. `router`: finds shards of other servers; without one there
/// are none. `settings`: those that are not secret, by name.
pub fn server_document(
    version: &str,
    started_at: Instant,
    shards: &[Handle],
    router: Option<&Router>,
    settings: BTreeMap<String, String>,
) -> Server {
    let known = router.map(Router::known);
    let is_here = |name: &str| shards.iter().any(|shard| shard.id().as_str() == name);
    let elsewhere = known.into_iter().flatten().map(|shard| shard.to_string());
    Server {
        version: version.to_owned(),
        uptime: started_at.elapsed(),
        shards: shards.iter().map(|shard| one(shard, version)).collect(),
        elsewhere: elsewhere.filter(|name| !is_here(name)).collect(),
        settings,
    }
}

fn one(shard: &Handle, version: &str) -> ServerShard {
    let numbers = shard.numbers();
    let (health, reason) = match numbers.health {
        Health::Ready => ("ready", None),
        Health::Full => (
            "full",
            Some("the store's device is nearly full: new work is refused".to_owned()),
        ),
        Health::Unreachable { reason } => ("unreachable", Some(reason)),
        Health::Starting { jobs } => ("starting", Some(format!("{jobs} jobs are loaded"))),
        Health::Stopped { reason } => ("stopped", Some(reason)),
    };
    ServerShard {
        shard: shard.id().to_string(),
        version: version.to_owned(),
        health: health.to_owned(),
        reason,
        uptime: numbers.uptime,
        live_jobs: numbers.live_jobs,
        commits_per_second: numbers.commits_per_second,
        commit_p99: numbers.commit_p99,
        store_bytes: numbers.store_bytes,
        disk_free_bytes: numbers.free_bytes,
        reserve_bytes: numbers.reserve_bytes,
        durability: numbers.durability.map(|mode| mode.name().to_owned()),
    }
}
