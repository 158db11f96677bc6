//! The thread that writes rows behind the log, so that no commit waits for them.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ganger_store::{Line, RepeatedWarning, StoreError};
use ganger_types::Elapsed;

use crate::backend::Backend;
use crate::shared::Shared;

/// Pause after the rows could not be written.
const FAILURE_PAUSE: Duration = Duration::from_millis(200);
/// Time between two looks for tables of old jobs that can be dropped. Each drops those of one range: enough for 100,000
/// jobs a second.
const PARTS_EVERY: Duration = Duration::from_secs(10);

/// The thread, which ends when this is dropped.
pub(crate) struct RowThread<B: Backend> {
    shared: Arc<Shared<B>>,
    thread: Option<JoinHandle<()>>,
}

impl<B: Backend> RowThread<B> {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system refuses another thread.
    pub(crate) fn start(shared: &Arc<Shared<B>>) -> Result<Self, StoreError> {
        let theirs = Arc::clone(shared);
        let name = format!("rows-{}", shared.backend.number());
        let started = thread::Builder::new()
            .name(name)
            .spawn(move || run(&theirs));
        let thread = started.map_err(|error| StoreError::Io {
            path: shared.backend.label().to_owned(),
            doing: "opened",
            reason: error.to_string(),
        })?;
        Ok(Self {
            shared: Arc::clone(shared),
            thread: Some(thread),
        })
    }
}

impl<B: Backend> Drop for RowThread<B> {
    fn drop(&mut self) {
        self.shared.queue.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes rows has panicked");
        }
    }
}

fn run<B: Backend>(shared: &Shared<B>) {
    let limits = shared.limits.queue();
    let began = Instant::now();
    let mut looked_at = began;
    let mut warning = RepeatedWarning::default();
    while shared.queue.wait_for_work(&limits).is_some() {
        let mut done = shared.tend();
        if done.is_ok() && looked_at.elapsed() >= PARTS_EVERY {
            // While a search runs, after the next rows again.
            done = shared.drop_old_parts().map(|has_looked| {
                if has_looked {
                    looked_at = Instant::now();
                }
            });
        }
        if let Err(fault) = done {
            let store = shared.backend.label();
            match warning.occur(Elapsed::default().after(began.elapsed())) {
                Some(Line::First) => {
                    tracing::warn!(?fault, store, "rows are not written; they stay in the log");
                }
                Some(Line::Again { times }) => {
                    tracing::warn!(?fault, store, times, "rows are still not written");
                }
                None => {}
            }
            thread::sleep(FAILURE_PAUSE);
        }
    }
}
