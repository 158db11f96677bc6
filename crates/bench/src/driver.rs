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

/// What the tasks of a connection do.
#[derive(Clone)]
pub enum Work {
    /// Only enqueue, until the quota is reached.
    Fill(Arc<Quota>),
    /// Enqueue while there is room.
    Produce,
    /// Take and complete, until the load is stopped.
    Consume,
    /// Enqueue, take and complete.
    Live,
    /// Enqueue at the pace, with workers that are idle meanwhile; over as many connections as that takes.
    Pace(Arc<Pace>),
}

/// The tasks of a connection, which begin when they are started.
#[derive(Default)]
pub struct Connection {
    /// Tasks that end with the load.
    pub producers: Vec<Task>,
    /// Tasks that run until they are stopped.
    pub workers: Vec<Task>,
}

/// One way to reach a server.
pub trait Driver: Sync {
    /// What the server has used so far.
    fn used(&self) -> BoxFuture<'_, Used>;

    /// Whether the tasks block their thread, so that each needs a thread of its own.
    fn blocks(&self) -> bool {
        false
    }

    /// Opens a connection for a load. The number tells it from others with the same work.
    fn connect<'a>(
        &'a self,
        work: Work,
        number: usize,
        load: &'a Arc<Load>,
    ) -> BoxFuture<'a, Result<Connection, Error>>;
}

/// The tasks of a load that run, each with its result or error.
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
