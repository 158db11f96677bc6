//! State that all connections of the port share.

use std::sync::Arc;
use std::time::Instant;

use ganger_shard::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::clients::Clients;
use crate::counters::Counters;
use crate::hub::Hub;
use crate::limits::WIDE_CALLS_MAX;
#[cfg(feature = "qless")]
use crate::script_library::Library;
use crate::settings::Settings;

/// The state that all connections share.
pub(crate) struct Shared {
    pub(crate) handle: Handle,
    pub(crate) settings: Settings,
    pub(crate) hub: Arc<Hub>,
    pub(crate) clients: Clients,
    pub(crate) counters: Arc<Counters>,
    /// Known scripts that clients have sent.
    #[cfg(feature = "qless")]
    pub(crate) library: Library,
    pub(crate) since: Instant,
    /// Permits for calls with large answers.
    wide: Semaphore,
}

impl Shared {
    /// Creates the state of a new port, and starts to publish messages of qless.
    ///
    /// # Panics
    /// If the settings have no database.
    pub(crate) fn new(handle: Handle, settings: Settings, counters: Arc<Counters>) -> Self {
        assert!(
            !settings.databases.is_empty(),
            "there is at least database 0"
        );
        let shared = Self {
            handle,
            settings,
            hub: Arc::default(),
            clients: Clients::default(),
            counters,
            #[cfg(feature = "qless")]
            library: Library::default(),
            since: Instant::now(),
            wide: Semaphore::new(WIDE_CALLS_MAX),
        };
        #[cfg(feature = "qless")]
        shared.listen();
        shared
    }

    /// Waits for a permit if the call may have a large answer.
    pub(crate) async fn permit(&self, is_wide: bool) -> Option<SemaphorePermit<'_>> {
        if is_wide {
            // The semaphore is never closed.
            self.wide.acquire().await.ok()
        } else {
            None
        }
    }

    /// Publishes the messages of qless on the shard's thread, so that they come before the reply to their call.
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
