//! The thread that writes waiting commits into the tables, so that no commit waits for them.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ganger_store::StoreError;

use crate::fault::io;
use crate::limits::Limits;
use crate::shared::Shared;

/// Pause after the tables could not be written. On a full disk commits and readers try too, when they need to; after
/// another failure the store has to be opened again.
const FAILURE_PAUSE: Duration = Duration::from_millis(200);

/// The thread, which ends when this is dropped.
pub(crate) struct RowThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl RowThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system refuses another thread.
    pub(crate) fn start(shared: &Arc<Shared>, limits: Limits) -> Result<Self, StoreError> {
        let theirs = Arc::clone(shared);
        let name = "ganger-rows".to_owned();
        let started = thread::Builder::new()
            .name(name)
            .spawn(move || run(&theirs, &limits));
        let thread = started.map_err(|error| io(shared.path(), "opened", error))?;
        Ok(Self {
            shared: Arc::clone(shared),
            thread: Some(thread),
        })
    }
}

impl Drop for RowThread {
    fn drop(&mut self) {
        self.shared.queue().stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the tables has panicked");
        }
    }
}

fn run(shared: &Shared, limits: &Limits) {
    while let Some(work) = shared.queue().wait_for_work(&limits.queue()) {
        let done = match &*shared.session() {
            Some(session) => session.tend(work),
            None => Ok(()),
        };
        if done.is_err() {
            thread::sleep(FAILURE_PAUSE);
        }
    }
}
