//! The optional parts of a server, each a feature of the build: ports beside the main one, and what they write.
//!
//! A part is prepared before the stores are opened, so that an address that is taken is refused at once; then opened in
//! front of a shard; then served.

use std::net::SocketAddr;
use std::sync::Arc;

use ganger_shard::Handle;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::error::StartError;
use crate::security::Security;
use crate::start::ServerContext;

/// Writes numbers in the text form of Prometheus.
pub(crate) type MetricsWriter = Arc<dyn Fn(&mut String) + Send + Sync>;

/// Puts a part that is prepared in front of a shard.
pub(crate) type Open = Box<dyn FnOnce(&ServerContext, &Handle) -> Result<Part, StartError> + Send>;

/// Begins to serve a part.
type Serve = Box<dyn FnOnce(&ServerContext) -> Result<RunningPart, StartError> + Send>;

/// Binds the ports of a part and opens its files.
type Prepare = fn(&Config, &Security) -> Result<Open, StartError>;

/// The parts of this build.
const PARTS: &[Prepare] = &[
    #[cfg(feature = "redis")]
    crate::redis::prepare,
    #[cfg(feature = "quantumleap")]
    crate::quantumleap::prepare,
];

/// A part in front of a shard, not served yet.
pub(crate) struct Part {
    /// Absent if the part counts nothing.
    pub(crate) metrics: Option<MetricsWriter>,
    pub(crate) serve: Serve,
}

/// A part that is served.
pub(crate) struct RunningPart {
    /// The name of its feature.
    pub(crate) feature: &'static str,
    /// Where it listens, and the task that ends after its last connection; absent if no address is set.
    pub(crate) port: Option<(SocketAddr, JoinHandle<()>)>,
    /// What is done once the shards have stopped; absent if nothing is.
    pub(crate) at_stop: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// Prepares every part of this build.
pub(crate) fn prepare(config: &Config, security: &Security) -> Result<Vec<Open>, StartError> {
    let prepared = PARTS.iter().map(|prepare| prepare(config, security));
    prepared.collect()
}
