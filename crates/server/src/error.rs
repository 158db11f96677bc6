//! The reason why the server cannot start or did not stop cleanly, with its exit code.

use std::net::SocketAddr;
use std::path::PathBuf;

use ganger_access::AccessError;
use ganger_shard::StopCause;
use ganger_store::StoreError;
use ganger_tls::TlsError;
use ganger_types::ShardId;

use crate::config::ConfigError;

/// The reason why the server could not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting cannot be read or used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The token's file cannot be used.
    #[error("the token file {path} cannot be used: {reason}", path = path.display())]
    Token {
        /// Path of the token's file.
        path: PathBuf,
        /// The reason why the file cannot be used.
        reason: String,
    },
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The access file cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Samples cannot be written to their directory.
    #[cfg(feature = "quantumleap")]
    #[error(transparent)]
    Telemetry(#[from] ganger_ngsi::telemetry::TelemetryError),
    /// The server would be reachable by others without protection.
    #[error(
        "refusing to listen on {addr}: others could reach it, and {missing}; set what is missing (--tls-cert and --tls-key; --token-file, --access-file or --tls-client-ca), or listen on 127.0.0.1, or give --insecure if nobody else uses this network"
    )]
    Open {
        /// The configured address, which others could reach.
        addr: SocketAddr,
        /// Clause of the message that names the missing protection.
        missing: &'static str,
    },
    /// The address cannot be read.
    #[error("address {addr:?} cannot be used: {reason}")]
    Address {
        /// The address as the user wrote it.
        addr: String,
        /// The reason why the address cannot be used.
        reason: String,
    },
    /// The host of the address cannot be resolved.
    #[error("address {addr:?} cannot be used: {reason}")]
    UnknownHost {
        /// The address as the user wrote it.
        addr: String,
        /// Message of the resolver.
        reason: String,
    },
    /// The address is in use.
    #[error(
        "cannot listen on {addr}: {reason}; another server may run there: stop it, or give another --addr"
    )]
    Listen {
        /// The address to listen on.
        addr: SocketAddr,
        /// Message of the operating system.
        reason: String,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system refused another operation.
    #[error("cannot {doing}: {reason}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// Message of the operating system.
        reason: String,
    },
    /// The store was found damaged while it was loaded: a restart does not help.
    #[error("the shard has stopped: {reason}")]
    Damaged {
        /// The shard, and the damage.
        reason: String,
    },
    /// The shard has ended by itself while the server ran.
    #[error("the shard has stopped: {reason}")]
    ShardEnded {
        /// The reason why the shard ended.
        reason: String,
    },
}

impl StartError {
    /// Returns the error of a server whose shard has ended by itself.
    pub fn ended(shard: &ShardId, cause: &StopCause) -> Self {
        let reason = format!("shard {shard}: {cause}");
        match cause {
            StopCause::StoreLost {
                is_damaged: true, ..
            } => Self::Damaged { reason },
            _ => Self::ShardEnded { reason },
        }
    }

    /// Returns the exit code of the process: 2 settings, 3 store, 4 address, 5 shard ended, 1 other.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Token { .. }
            | Self::Tls(_)
            | Self::Access(_)
            | Self::Address { .. }
            | Self::Open { .. } => 2,
            #[cfg(feature = "quantumleap")]
            Self::Telemetry(_) => 2,
            Self::Store(_) | Self::Damaged { .. } => 3,
            Self::UnknownHost { .. } | Self::Listen { .. } => 4,
            Self::ShardEnded { .. } => 5,
            Self::System { .. } => 1,
        }
    }
}
