//! What the server can be told, and from where: file, environment, flags, in this order.

mod keys;
mod optional;
#[cfg(feature = "quantumleap")]
mod quantumleap;
#[cfg(feature = "redis")]
mod redis;
mod shards;
mod source;

use std::path::PathBuf;
use std::time::Duration;

use ganger_router::Topology;
use ganger_types::ShardId;
use ganger_types::keys::KeyUpkeep;

use crate::secret::Secret;
use crate::security::Require;

pub use keys::Key;
pub use optional::{find_key, keys};
#[cfg(feature = "quantumleap")]
pub use quantumleap::QuantumLeapPort;
#[cfg(feature = "redis")]
pub use redis::RedisPort;
pub use source::{Flag, load};

/// The value of `db` for a store that is lost when the process ends.
pub const DB_IN_MEMORY: &str = ":memory:";

/// A setting that cannot be read or used: which, from where, why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct ConfigError {
    /// Such as `ganger.toml line 3`, `GANGER_ADDR`, `--addr`.
    pub place: String,
    /// What is wrong, and what would be right.
    pub reason: String,
}

/// All settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen: `HOST:PORT`; `:PORT` is loopback. Default `127.0.0.1:3733`.
    pub addr: String,
    /// The id of the shard, if there is one in this process. Default `1`.
    pub shard: ShardId,
    /// The ids of several shards in this process, each with a store of its own; empty if it is the one. The
    /// first is the one that requests mean which name none.
    pub shards: Vec<ShardId>,
    /// Where the shards of other servers are.
    pub topology: Topology,
    /// A file with the token to show to other servers; without it the one that this server asks for.
    pub peer_token_file: Option<PathBuf>,
    /// The store's file, see [`Config::db_of`]; [`DB_IN_MEMORY`] keeps nothing. Default `ganger.db`.
    pub db: PathBuf,
    /// Whether the directory of the store is made if it is missing: if `data_dir` names it, and `db` nothing.
    pub makes_directory: bool,
    /// The token that clients must send; none by default. Read from `GANGER_TOKEN` only.
    pub token: Option<Secret>,
    /// A file with that token.
    pub token_file: Option<PathBuf>,
    /// Tokens and certificates with what each may do, as `ganger token` writes it.
    pub access_file: Option<PathBuf>,
    /// The server's certificate, and the authority of its clients.
    pub tls: Tls,
    /// What clients must show; follows from the tokens and authorities there are, if not said.
    pub require: Option<Require>,
    /// Likewise, over HTTP only.
    pub require_http: Option<Require>,
    /// Likewise, over gRPC only.
    pub require_grpc: Option<Require>,
    /// Settings of the Redis port.
    #[cfg(feature = "redis")]
    pub redis: RedisPort,
    /// When queues of the Redis port are put in order without being asked. A build without the port does so too: they
    /// are in the store.
    pub key_upkeep: KeyUpkeep,
    /// Settings of the QuantumLeap port.
    #[cfg(feature = "quantumleap")]
    pub quantumleap: QuantumLeapPort,
    /// Where the audit log goes; into the ordinary log, if absent.
    pub audit_log: Option<PathBuf>,
    /// Listen beyond loopback although something is missing: encryption, or a check of who asks.
    pub insecure: bool,
    /// Names that may stand in `Host` beside `localhost` and plain addresses; `*` is any.
    pub hosts: Vec<String>,
    /// Which log lines: a level, or directives such as `info,ganger_shard=debug`. Default `info`.
    pub log: String,
    /// How log lines look.
    pub log_format: LogFormat,
    /// How long a stop waits for requests in flight. Default 10 s.
    pub stop_timeout: Duration,
    /// Free bytes kept on the store's device for reports and deletion. Default 256 MiB.
    pub reserve_bytes: u64,
    /// Limits on what comes from outside.
    pub limits: Limits,
}

/// Files in PEM form; they are read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate, followed by those that lead to its authority.
    pub cert: Option<PathBuf>,
    /// The certificate's private key.
    pub key: Option<PathBuf>,
    /// Authorities of clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// Clients' certificates that were revoked.
    pub client_crl: Option<PathBuf>,
    /// Authorities of other servers' certificates; without it that of the clients, else those that the system
    /// trusts.
    pub peer_ca: Option<PathBuf>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Log lines for people to read, the default.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Limits on what comes from outside.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once; more wait to be accepted. Default 10,000.
    pub connections: usize,
    /// Connections at once of one address. Default 5,000: one client must not take all.
    pub connections_per_address: usize,
    /// How long a TLS handshake may take. Default 10 s.
    pub handshake_timeout: Duration,
    /// Bytes of a request's head. Default 16 KiB.
    pub header_bytes: usize,
    /// Header lines of a request. Default 100.
    pub headers: usize,
    /// How long a request's head may take, and a connection may idle over HTTP/1. Default 30 s.
    pub header_timeout: Duration,
    /// How long a write may make no progress before the connection is cut. Default 60 s.
    pub write_timeout: Duration,
    /// Requests at once over one HTTP/2 connection. Default 1,000.
    pub streams_per_connection: u32,
    /// Event streams, log followers and batches at once, of one identity a quarter. Default 1,000.
    pub streams: usize,
    /// Bytes of a body, but for graphs and batches. Default 32 MiB.
    pub body_bytes: usize,
    /// Bytes of a graph's submission. Default 48 MiB.
    pub graph_bytes: usize,
    /// Bytes of a line of a batch. Default 8 MiB.
    pub line_bytes: usize,
    /// Bytes that all requests in progress may hold together: bodies, answers, and 16 KiB for each. Default 288 MiB.
    pub bytes_in_flight: usize,
    /// Commands that wait for the shard; more are refused as overloaded. Default 65,536.
    pub inbox_commands: usize,
    /// Lease requests and waits for ends at once. Default 100,000.
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
