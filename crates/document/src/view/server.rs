//! The server as shown: its shards, how busy they are, and its settings.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::time::{seconds, seconds_if_any};

/// The server: its version, its shards, and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Server {
    /// Version of the server.
    pub version: String,
    /// Seconds since the start of the server.
    #[serde(rename = "uptime_seconds", serialize_with = "seconds")]
    #[schema(value_type = f64)]
    pub uptime: Duration,
    /// Shards of this process.
    pub shards: Vec<ServerShard>,
    /// Names of the shards that other servers have; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub elsewhere: Vec<String>,
    /// Settings of the server that are not secret, by name.
    pub settings: BTreeMap<String, String>,
}

/// A shard of this process.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ServerShard {
    /// Name of the shard.
    pub shard: String,
    /// Version of the program that serves the shard.
    pub version: String,
    /// Health of the shard: `ready`, `starting`, `full` (no new work for lack of space), `unreachable` (its store) or
    /// `stopped`.
    pub health: String,
    /// Reason of a health other than `ready`; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds since the start of the shard.
    #[serde(rename = "uptime_seconds", serialize_with = "seconds")]
    #[schema(value_type = f64)]
    pub uptime: Duration,
    /// Number of jobs that have not ended.
    pub live_jobs: u64,
    /// Commits a second since the last request for this, or since the start; of at least one second.
    pub commits_per_second: f64,
    /// Upper bound of the duration of 99 % of the commits since the start, in seconds; absent before the first commit.
    #[serde(
        rename = "commit_p99_seconds",
        serialize_with = "seconds_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub commit_p99: Option<Duration>,
    /// Size of the store's files in bytes; absent if the store has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_bytes: Option<u64>,
    /// Free bytes on the store's device; absent if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_free_bytes: Option<u64>,
    /// Bytes of the store's device that are held in reserve; 0 without a reserve.
    pub reserve_bytes: u64,
    /// What an acknowledged job survives: `quorum` or `storage` (the loss of the database's primary), `alone` (a crash of
    /// it) or `none`; absent if the store is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
}
