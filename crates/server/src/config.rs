//! Settings of the server, from file, environment and flags, in this order.

mod alerts;
#[cfg(feature = "dashboard")]
mod dashboard;
mod keys;
mod optional;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "quantumleap")]
mod quantumleap;
#[cfg(feature = "redis")]
mod redis;
mod shards;
mod shown;
mod source;

use std::path::PathBuf;
use std::time::Duration;

use ganger_attention::alert::Alert;
use ganger_router::Topology;
use ganger_types::ShardId;
use ganger_types::keys::KeyUpkeep;

use crate::secret::Secret;
use crate::security::Require;

pub use keys::Key;
pub use optional::{find_key, keys};
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "quantumleap")]
pub use quantumleap::QuantumLeapPort;
#[cfg(feature = "redis")]
pub use redis::RedisPort;
pub use source::{Flag, load};

/// The value of `db` for a store that is lost when the process ends.
pub const DB_IN_MEMORY: &str = ":memory:";

/// A setting that cannot be read or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct ConfigError {
    /// Source of the setting, such as `ganger.toml line 3`, `GANGER_ADDR`, `--addr`.
    pub place: String,
    /// Description of what is wrong, and what would be right.
    pub reason: String,
}

/// All settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on: `HOST:PORT`; `:PORT` is loopback. Default `127.0.0.1:3733`.
    pub addr: String,
    /// Id of the shard, if this process has a single one. Default `1`.
    pub shard: ShardId,
    /// Ids of several shards in this process, each with its own store; empty for a single shard. The first is the
    /// default for requests that name none.
    pub shards: Vec<ShardId>,
    /// Addresses of the shards of other servers. Default none.
    pub topology: Topology,
    /// File with the token for other servers; `None` for the token that this server itself asks for.
    pub peer_token_file: Option<PathBuf>,
    /// File of the store, see [`Config::db_of`]; [`DB_IN_MEMORY`] stores nothing on disk. Default `ganger.db`.
    pub db: PathBuf,
    /// Store in PostgreSQL; without an address the store is `db`.
    #[cfg(feature = "postgres")]
    pub postgres: PostgresStore,
    /// Whether a missing directory of the store is created: only if `data_dir` names it and `db` is not set.
    pub makes_directory: bool,
    /// Token that clients must send; `None` (default) for no token. Read only from `GANGER_TOKEN`.
    pub token: Option<Secret>,
    /// File with that token.
    pub token_file: Option<PathBuf>,
    /// File of tokens and certificates with their grants, as `ganger token` writes it; `None` for no file.
    pub access_file: Option<PathBuf>,
    /// The server's certificate, and the authorities of its clients.
    pub tls: Tls,
    /// Credentials that clients must present; `None` to derive them from the configured tokens and authorities.
    pub require: Option<Require>,
    /// Credentials that HTTP clients must present; `None` for the value of `require`.
    pub require_http: Option<Require>,
    /// Credentials that gRPC clients must present; `None` for the value of `require`.
    pub require_grpc: Option<Require>,
    /// Settings of the Redis port.
    #[cfg(feature = "redis")]
    pub redis: RedisPort,
    /// Intervals and limits of the upkeep of the Redis port's queues. A build without the port does the upkeep too,
    /// since the queues are in the store.
    pub key_upkeep: KeyUpkeep,
    /// Settings of the QuantumLeap port.
    #[cfg(feature = "quantumleap")]
    pub quantumleap: QuantumLeapPort,
    /// Settings of the dashboard.
    #[cfg(feature = "dashboard")]
    pub ui: ganger_dashboard::Options,
    /// Alerts that are watched, at most [`ALERTS_MAX`](ganger_attention::alert::ALERTS_MAX). Read only from the file.
    pub alerts: Vec<Alert>,
    /// Time between two looks at the conditions of alerts. Default 10 s; no setting changes it.
    pub alerts_every: Duration,
    /// File of the audit log; `None` for the ordinary log.
    pub audit_log: Option<PathBuf>,
    /// Whether to listen beyond loopback although encryption or authentication is missing. Default no.
    pub insecure: bool,
    /// Names allowed in the header `Host` besides `localhost` and IP addresses; `*` allows any.
    pub hosts: Vec<String>,
    /// Filter of log lines: a level, or directives such as `info,ganger_shard=debug`. Default `info`.
    pub log: String,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Longest time that a stop waits for requests in flight. Default 10 s.
    pub stop_timeout: Duration,
    /// Free bytes kept on the store's device for reports and deletion. Default 256 MiB.
    pub reserve_bytes: u64,
    /// Limits on connections and requests.
    pub limits: Limits,
}

/// Certificate files in PEM format, read again when they change; `None` where one is not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate, followed by intermediate certificates.
    pub cert: Option<PathBuf>,
    /// The certificate's private key.
    pub key: Option<PathBuf>,
    /// Authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// List of revoked client certificates.
    pub client_crl: Option<PathBuf>,
    /// Authorities of other servers' certificates; `None` for those of the clients, or if these are missing too,
    /// those that the system trusts.
    pub peer_ca: Option<PathBuf>,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Log lines for people to read, the default.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Limits on connections and requests.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of connections; more wait to be accepted. Default 10,000.
    pub connections: usize,
    /// Maximum number of connections of one address, so that one client cannot take all. Default 5,000.
    pub connections_per_address: usize,
    /// Longest TLS handshake. Default 10 s.
    pub handshake_timeout: Duration,
    /// Maximum bytes of a request's head. Default 16 KiB.
    pub header_bytes: usize,
    /// Maximum number of header lines of a request. Default 100.
    pub headers: usize,
    /// Longest time for receiving a request's head, and longest idle time of an HTTP/1 connection. Default 30 s.
    pub header_timeout: Duration,
    /// Time without progress of a write after which the connection is cut. Default 60 s.
    pub write_timeout: Duration,
    /// Maximum number of concurrent requests on one HTTP/2 connection. Default 1,000.
    pub streams_per_connection: u32,
    /// Maximum number of event streams, log followers and batches at once; one identity gets a quarter. Default
    /// 1,000.
    pub streams: usize,
    /// Maximum bytes of a body, except graphs and batches. Default 32 MiB.
    pub body_bytes: usize,
    /// Maximum bytes of a graph's submission. Default 48 MiB.
    pub graph_bytes: usize,
    /// Maximum bytes of a line of a batch. Default 8 MiB.
    pub line_bytes: usize,
    /// Maximum bytes that all requests in progress hold together: bodies, responses, and 16 KiB for each. Default 288
    /// MiB.
    pub bytes_in_flight: usize,
    /// Maximum number of commands waiting for the shard; more are refused as overloaded. Default 65,536.
    pub inbox_commands: usize,
    /// Maximum number of waiting lease requests and waits for ends. Default 100,000.
    pub waiters: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 5_000,
            handshake_timeout: Duration::from_secs(10),
            header_bytes: 16 << 10,
            headers: 100,
            header_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            streams_per_connection: 1_000,
            streams: 1_000,
            body_bytes: 32 << 20,
            graph_bytes: 48 << 20,
            line_bytes: 8 << 20,
            bytes_in_flight: 288 << 20,
            inbox_commands: 65_536,
            waiters: 100_000,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addr: "127.0.0.1:3733".to_owned(),
            shard: ShardId::default(),
            shards: Vec::new(),
            topology: Topology::Alone,
            peer_token_file: None,
            db: PathBuf::from("ganger.db"),
            #[cfg(feature = "postgres")]
            postgres: PostgresStore::default(),
            makes_directory: false,
            token: None,
            token_file: None,
            access_file: None,
            tls: Tls::default(),
            require: None,
            require_http: None,
            require_grpc: None,
            #[cfg(feature = "redis")]
            redis: RedisPort::default(),
            key_upkeep: KeyUpkeep::default(),
            #[cfg(feature = "quantumleap")]
            quantumleap: QuantumLeapPort::default(),
            #[cfg(feature = "dashboard")]
            ui: ganger_dashboard::Options::default(),
            alerts: Vec::new(),
            alerts_every: Duration::from_secs(10),
            audit_log: None,
            insecure: false,
            hosts: Vec::new(),
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            stop_timeout: Duration::from_secs(10),
            reserve_bytes: 256 << 20,
            limits: Limits::default(),
        }
    }
}
