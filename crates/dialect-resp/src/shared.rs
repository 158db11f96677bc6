//! What all connections of the port share.

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
    /// What the connections of a new port share; messages of qless are published from now on.
    ///
    /// # Panics
    /// If there is no database.
    pub(crate) fn new(handle: Handle, settings: Settings) -> Self {
        assert!(
            !settings.databases.is_empty(),
            "there is at least database 0"
        );
        let shared = Self {
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
        shared
    }

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
