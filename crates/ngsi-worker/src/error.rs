//! The reason why a pool cannot work.

use std::io;
use std::net::SocketAddr;

use crate::restarts::STARTED_AFTER;

/// The reason why a pool cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server cannot be used.
    #[error(transparent)]
    Client(#[from] ganger_client::Error),
    /// The processes that insert end right after their start.
    #[error(
        "no insert process could be kept running: ten in a row ended within {STARTED_AFTER:?} of their start, the last one because {how}; see their log"
    )]
    GaveUp {
        /// How the last process ended.
        how: String,
    },
    /// The metrics cannot be served at the address.
    #[error("cannot listen at {address} for --metrics: {source}")]
    Listen {
        /// Address given with `--metrics`.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Samples cannot be written.
    #[error(transparent)]
    Telemetry(#[from] ganger_ngsi::telemetry::TelemetryError),
}
