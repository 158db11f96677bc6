//! The settings of the port.

use std::time::Duration;

use ganger_access::{Audit, Budget};
use ganger_types::Namespace;
use tokio_util::sync::CancellationToken;

/// The settings of the port.
#[derive(Clone)]
pub struct Settings {
    /// Namespaces of the databases: `SELECT n` selects the n-th. Not empty.
    pub databases: Vec<Namespace>,
    /// Whether `FLUSHDB` and `FLUSHALL` are allowed.
    pub may_flush: bool,
    /// Time without progress of a write after which the connection is cut.
    pub write_timeout: Duration,
    /// Time that a client has to authenticate, if that is required.
    pub login_timeout: Duration,
    /// TCP port that `INFO` shows.
    pub tcp_port: u16,
    /// Audit log, for refusals and for commands that remove everything.
    pub audit: Audit,
    /// Memory budget of requests in progress, shared with the other ports.
    pub budget: Budget,
    /// Token that ends all connections, each after its pending replies.
    pub stopping: CancellationToken,
}

impl Settings {
    /// The usual 16 databases: 0 is the namespace `default`, 1 to 15 are `db1` to `db15`.
    pub fn usual_databases() -> Vec<Namespace> {
        let numbered = (1..16).filter_map(|number| Namespace::new(format!("db{number}")).ok());
        std::iter::once(Namespace::from_static("default"))
            .chain(numbered)
            .collect()
    }
}
