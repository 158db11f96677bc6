//! The thread that writes waiting commits into the tables, so that no commit waits for them.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ganger_store::StoreError;

use crate::fault::{Fault, io};
use crate::limits::Limits;
use crate::rows::Flush;
use crate::session::Session;
use crate::shared::Shared;

/// Pause after the disk was found full. Commits and readers try too, when they need to.
const FULL_PAUSE: Duration = Duration::from_millis(200);

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
    while shared.queue().wait_until_due(limits) {
        let is_full = match &*shared.session() {
            Some(session) => write(session),
            None => false,
        };
        if is_full {
            thread::sleep(FULL_PAUSE);
        }
    }
}

/// Writes the tables; returns whether the disk is full.
fn write(session: &Session) -> bool {
    match session.apply_waiting(Flush::Now) {
        Ok(()) => {
            session.checkpoint_if_long();
            session.prepare_segment();
            false
        }
        Err(fault) => {
            session.record_failed_upkeep(&fault);
            Fault::is_full(&fault)
        }
    }
}
