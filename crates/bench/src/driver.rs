//! Drivers: they open the connections of a load and make the tasks that use them.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::enqueue::Quota;
use crate::latency::Pace;
use crate::{Error, Load, Used};

/// The work of a connection until its load has ended.
pub type Task = BoxFuture<'static, Result<(), Error>>;

/// The kind of work of a connection.
#[derive(Clone)]
pub enum Work {
    /// Enqueues until the quota is used up.
    Fill(Arc<Quota>),
    /// Enqueues while the load has room.
    Produce,
    /// Leases and completes until the load is stopped.
    Consume,
    /// Enqueues, leases and completes.
    Live,
    /// Enqueues at the pace, with idle workers; over as many connections as that needs.
    Pace(Arc<Pace>),
}

/// The tasks of a connection, not started yet.
#[derive(Default)]
pub struct Connection {
    /// Tasks that end with the load.
    pub producers: Vec<Task>,
    /// Tasks that run until they are stopped.
    pub workers: Vec<Task>,
}

/// A way to use a server.
pub trait Driver: Sync {
    /// Returns the resources that the server has used so far.
    fn used(&self) -> BoxFuture<'_, Used>;

    /// Whether a task blocks its thread, so that each needs a separate one.
    fn blocks(&self) -> bool {
        false
    }

    /// Opens a connection for a load; `number` distinguishes connections with the same work.
    fn connect<'a>(
        &'a self,
        work: Work,
        number: usize,
        load: &'a Arc<Load>,
    ) -> BoxFuture<'a, Result<Connection, Error>>;
}

/// The running tasks of a load.
#[derive(Default)]
pub(crate) struct Tasks(JoinSet<Result<(), Error>>);

impl Tasks {
    pub(crate) fn start(&mut self, driver: &dyn Driver, tasks: Vec<Task>) {
        for task in tasks {
            if driver.blocks() {
                let runtime = Handle::current();
                self.0.spawn_blocking(move || runtime.block_on(task));
            } else {
                self.0.spawn(task);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until all tasks have ended; fails if one has failed.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        while let Some(ended) = self.0.join_next().await {
            ended.map_err(|error| Error::failed(error.to_string()))??;
        }
        Ok(())
    }

    /// Fails if a task that has ended failed.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        while let Some(ended) = self.0.try_join_next() {
            ended.map_err(|error| Error::failed(error.to_string()))??;
        }
        Ok(())
    }

    /// Aborts all tasks. Blocking ones must have been stopped through their load or pace.
    pub(crate) async fn stop(mut self) {
        self.0.shutdown().await;
    }
}
