//! The Redis port of a shard.

use std::net::SocketAddr;
use std::sync::Arc;

use ganger_shard::Handle;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::counters::{Counters, Gauge};
use crate::hub::Hub;
use crate::login::Login;
use crate::session::Session;
use crate::settings::Settings;
use crate::shared::Shared;

/// The Redis port of a shard. Cheap to clone.
#[derive(Clone)]
pub struct Port {
    pub(crate) shared: Arc<Shared>,
}

impl Port {
    /// Creates the port of a shard.
    ///
    /// # Panics
    /// If the settings have no database.
    pub fn new(handle: Handle, settings: Settings) -> Self {
        Self {
            shared: Arc::new(Shared::new(handle, settings, Arc::default())),
        }
    }

    /// Returns the same port over another handle, with the same settings and counters, and no connections. `stopping`
    /// ends its connections, each after its pending replies.
    #[must_use]
    pub fn over(&self, handle: Handle, stopping: CancellationToken) -> Self {
        let settings = Settings {
            stopping,
            ..self.shared.settings.clone()
        };
        let counters = Arc::clone(&self.shared.counters);
        Self {
            shared: Arc::new(Shared::new(handle, settings, counters)),
        }
    }

    /// Returns the counters of the port.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.shared.counters
    }

    /// The hub on which messages are published.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.shared.hub
    }

    /// Serves a connection until it ends. `from` is the client's address, `at` the server's.
    pub async fn serve<S>(&self, stream: S, login: Arc<dyn Login>, from: SocketAddr, at: SocketAddr)
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
