//! Queries about the queue, to the server or to a test double.

use std::future::Future;

use ganger_client::{Client, Error, code};

/// The state of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Number of tasks that could run now.
    pub ready: u64,
    /// Number of tasks that have not ended: ready, running, or waiting for a retry.
    pub pending: u64,
    /// Whether the queue is paused, so that ready tasks are not leased.
    pub is_paused: bool,
}

/// Queries to the server.
pub trait ServerQueries: Clone + Send + Sync + 'static {
    /// Returns the state of the queue.
    fn queue_state(&self) -> impl Future<Output = Result<QueueState, Error>> + Send;
    /// Returns how many tasks this pool holds according to the server, including those still on their way to it.
    fn held_tasks(&self) -> impl Future<Output = Result<usize, Error>> + Send;
}

/// The server of a real pool.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) queue: String,
    pub(crate) worker: String,
}

impl ServerQueries for Server {
    async fn queue_state(&self) -> Result<QueueState, Error> {
        let view = match self.client.queue(&self.queue).await {
            Ok(view) => view,
            // The queue is created with its first task.
            Err(error) if error.code() == "queue_not_found" => return Ok(QueueState::default()),
            Err(error) => return Err(error),
        };
        let counts = view.counts;
        Ok(QueueState {
            ready: counts.ready,
            pending: counts.ready + counts.running + counts.scheduled + counts.blocked,
            is_paused: view.settings.paused,
        })
    }

    async fn held_tasks(&self) -> Result<usize, Error> {
        let workers = self.client.workers().await?;
        let own = workers.iter().find(|view| view.worker == self.worker);
        Ok(own.map_or(0, |view| view.holds.len()))
    }
}

/// Whether the error is permanent, so that repeating the query is useless.
pub(crate) fn is_final(error: &Error) -> bool {
    !error.is_retryable() && error.code() != code::TIMED_OUT
}
