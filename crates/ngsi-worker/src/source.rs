//! Whom a pool asks how its queue stands: the server, or a script of a test.

use std::future::Future;

use ganger_client::{Client, Error, code};

/// How a queue stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Tasks that could run now.
    pub ready: u64,
    /// Tasks that have not come to their end: those, the running ones and those that wait for a retry.
    pub pending: u64,
    /// Whether somebody stopped it: what is ready is not handed out.
    pub is_paused: bool,
}

/// Whom to ask how things stand.
pub trait ServerQueries: Clone + Send + Sync + 'static {
    /// How the queue stands.
    fn queue_state(&self) -> impl Future<Output = Result<QueueState, Error>> + Send;
    /// How many tasks this pool holds in the server's eyes. Some may still be on their way to it.
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
            // It comes into being with its first task.
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

/// Whether the server will say the same however often it is asked.
pub(crate) fn is_final(error: &Error) -> bool {
    !error.is_retryable() && error.code() != code::TIMED_OUT
}
