//! Drivers: how the connections of a load are made and what each of them does.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::enqueue::Quota;
use crate::latency::Pace;
use crate::{Error, Load, Used};

/// The work of one connection until its load is over.
pub type Task = BoxFuture<'static, Result<(), Error>>;

/// A connection in the making; its work begins when the task is started.
pub type Connecting<'a> = BoxFuture<'a, Result<Task, Error>>;

/// One way to reach a server. Every task has a connection of its own, unless the method says otherwise.
pub trait Driver: Sync {
    /// What the server has used so far.
    fn used(&self) -> BoxFuture<'_, Used>;

    /// Whether the tasks block their thread, so that each needs a thread of its own.
    fn blocks(&self) -> bool {
        false
    }

    /// A task that only enqueues, until the quota is reached.
    fn fill<'a>(&'a self, load: &'a Arc<Load>, quota: &'a Arc<Quota>) -> Connecting<'a>;

    /// A task that enqueues while there is room.
    fn produce<'a>(&'a self, load: &'a Arc<Load>) -> Connecting<'a>;

    /// A task that takes and completes until the load is stopped.
    fn consume<'a>(&'a self, number: usize, load: &'a Arc<Load>) -> Connecting<'a>;

    /// The tasks of one connection that enqueues, takes and completes: the first ends with the load; the second, if
    /// there is one, runs until it is stopped.
    fn live<'a>(
        &'a self,
        number: usize,
        load: &'a Arc<Load>,
    ) -> BoxFuture<'a, Result<(Task, Option<Task>), Error>>;

    /// Tasks that enqueue at the pace, and tasks of workers that are idle meanwhile.
    fn pace<'a>(
        &'a self,
        load: &'a Arc<Load>,
        pace: &'a Arc<Pace>,
    ) -> BoxFuture<'a, Result<Vec<Task>, Error>>;
}

/// Running tasks.
#[derive(Default)]
pub(crate) struct Tasks(JoinSet<Result<(), Error>>);

impl Tasks {
    pub(crate) fn start(&mut self, driver: &dyn Driver, task: Task) {
        if driver.blocks() {
            let runtime = Handle::current();
            self.0.spawn_blocking(move || runtime.block_on(task));
        } else {
            self.0.spawn(task);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until all have ended; fails if one did.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        while let Some(ended) = self.0.join_next().await {
            ended.map_err(|error| Error::failed(error.to_string()))??;
        }
        Ok(())
    }

    /// The failure of a task that has ended, if one has.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        while let Some(ended) = self.0.try_join_next() {
            ended.map_err(|error| Error::failed(error.to_string()))??;
        }
        Ok(())
    }

    /// Ends all tasks. Those that block their thread must have been stopped through their load or pace.
    pub(crate) async fn stop(mut self) {
        self.0.shutdown().await;
    }
}
