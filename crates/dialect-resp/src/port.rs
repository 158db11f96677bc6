//! The port: what all its connections share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ganger_access::{Audit, Budget};
use ganger_shard::Handle;
use ganger_types::Namespace;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::clients::Clients;
use crate::connection::Connection;
use crate::counters::{Counters, Gauge};
use crate::hub::Hub;
use crate::limits::WIDE_CALLS_MAX;
use crate::login::Login;
#[cfg(feature = "qless")]
use crate::qless::Library;
use crate::session::Session;

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

/// The port. Cheap to clone.
#[derive(Clone)]
pub struct Port {
    shared: Arc<Shared>,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) handle: Handle,
    pub(crate) settings: Settings,
    pub(crate) hub: Arc<Hub>,
    pub(crate) clients: Clients,
    pub(crate) counters: Arc<Counters>,
    /// Scripts that were sent and are known.
    #[cfg(feature = "qless")]
    pub(crate) library: Library,
    pub(crate) since: Instant,
    /// Places for calls with large answers.
    wide: Semaphore,
}

impl Shared {
    /// A place among the calls with large answers, if it is one.
    pub(crate) async fn permit(&self, is_wide: bool) -> Option<SemaphorePermit<'_>> {
        if is_wide {
            // It is never closed.
            self.wide.acquire().await.ok()
        } else {
            None
        }
    }

    /// Has the messages of qless published, on the shard's thread: they are there before the reply to their call.
    #[cfg(feature = "qless")]
    fn listen(&self) {
        let (hub, counters) = (Arc::clone(&self.hub), Arc::clone(&self.counters));
        self.handle.listen(Arc::new(move |messages| {
            for (namespace, message) in messages {
                crate::counters::count(&counters.qless.messages);
                hub.publish(namespace, &message.channel, &message.payload);
            }
        }));
    }
}

impl Port {
    /// A port in front of a shard.
    ///
    /// # Panics
    /// If there is no database.
    pub fn new(handle: Handle, settings: Settings) -> Self {
        assert!(
            !settings.databases.is_empty(),
            "there is at least database 0"
        );
        let shared = Shared {
            handle,
            settings,
            hub: Arc::default(),
            clients: Clients::default(),
            counters: Arc::default(),
            #[cfg(feature = "qless")]
            library: Library::default(),
            since: Instant::now(),
            wide: Semaphore::new(WIDE_CALLS_MAX),
        };
        #[cfg(feature = "qless")]
        shared.listen();
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns the counters of the port.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.shared.counters
    }

    /// Where messages are published.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.shared.hub
    }

    /// Serves a connection until it ends: `from` is the client's address, `at` this side's.
    pub async fn serve<S>(&self, stream: S, login: Box<dyn Login>, from: SocketAddr, at: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let shared = &self.shared;
        let _open = Gauge::of(&shared.counters.open);
        let client = shared.clients.enter(from, at, &shared.settings.stopping);
        let session = Session::new(Arc::clone(shared), client, login);
        let ended = Connection::new(stream, session).run().await;
        tracing::debug!(%from, ended = ended.as_str(), "a Redis connection ended");
    }
}
