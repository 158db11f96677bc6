//! The settings of the port.

use std::time::Duration;

use ganger_access::{Audit, Budget};
use ganger_types::Namespace;
use tokio_util::sync::CancellationToken;

/// How the port behaves.
#[derive(Clone)]
pub struct Settings {
    /// Whose keys each database holds: `SELECT n` chooses the n-th. Not empty.
    pub databases: Vec<Namespace>,
    /// Whether `FLUSHDB` and `FLUSHALL` do anything.
    pub may_flush: bool,
    /// How long a write may make no progress before the connection is cut.
    pub write_timeout: Duration,
    /// How long a connection may take to show who it is, where that is asked for.
    pub login_timeout: Duration,
    /// The TCP port, as `INFO` tells it.
    pub tcp_port: u16,
    /// Hears of refusals and of what removes everything.
    pub audit: Audit,
    /// The memory that requests in progress may hold, shared with the other ports.
    pub budget: Budget,
    /// Ends all connections, each once what it asked for is answered.
    pub stopping: CancellationToken,
}

impl Settings {
    /// Databases as Redis has them: 0 is the namespace `default`, 1 to 15 are `db1` to `db15`.
    pub fn usual_databases() -> Vec<Namespace> {
        let numbered = (1..16).filter_map(|number| Namespace::new(format!("db{number}")).ok());
        std::iter::once(Namespace::from_static("default"))
            .chain(numbered)
            .collect()
    }
}
