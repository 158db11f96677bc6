//! The optional parts of a server, each a feature of the build: separate ports and their metrics.
//!
//! A part is prepared before the stores are opened, so that an address in use is refused at once; then it is
//! connected to a shard; then served.

use std::net::SocketAddr;
use std::sync::Arc;

use ganger_shard::Handle;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::error::StartError;
use crate::home_ports::HomePort;
use crate::security::Security;
use crate::shard_dispatch::ShardDispatch;
use crate::start::ServerContext;

/// Connects a prepared part to a shard.
pub(crate) type Open = Box<dyn FnOnce(&ServerContext, &Handle) -> Result<Part, StartError> + Send>;

/// Starts to serve a part.
type Serve =
    Box<dyn FnOnce(&ServerContext, &Arc<ShardDispatch>) -> Result<RunningPart, StartError> + Send>;

/// Binds the ports of a part and opens its files.
type Prepare = fn(&Config, &Security) -> Result<Open, StartError>;

/// The parts of this build.
const PARTS: &[Prepare] = &[
    #[cfg(feature = "redis")]
    crate::redis::prepare,
    #[cfg(feature = "quantumleap")]
    crate::quantumleap::prepare,
];

/// A part connected to a shard, not served yet.
pub(crate) struct Part {
    /// The part's metrics; `None` if it has none.
    pub(crate) metrics: Option<ganger_metrics::Source>,
    /// Its port over the default shard; `None` if no address is set.
    pub(crate) home_port: Option<Arc<dyn HomePort>>,
    pub(crate) serve: Serve,
}

/// A part whose port is served.
pub(crate) struct RunningPart {
    /// Name of its feature.
    pub(crate) feature: &'static str,
    /// Address of its port, and the task that ends after its last connection; `None` if no address is set.
    pub(crate) port: Option<(SocketAddr, JoinHandle<()>)>,
    /// Called once the shards have stopped; `None` if there is nothing to do.
    pub(crate) at_stop: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// Prepares every part of this build.
pub(crate) fn prepare(config: &Config, security: &Security) -> Result<Vec<Open>, StartError> {
    let prepared = PARTS.iter().map(|prepare| prepare(config, security));
    prepared.collect()
}
