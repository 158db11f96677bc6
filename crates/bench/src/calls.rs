//! The driver for connections that carry one call after the other.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::driver::{Connecting, Driver, Task};
use crate::enqueue::Quota;
use crate::latency::Pace;
use crate::{Error, Load, Used};

/// Connections that enqueue while the time to the start of a job is measured, and as many that wait for jobs.
const LATENCY_CONNECTIONS: usize = 16;

/// A queue server whose connections carry one call after the other.
pub trait Peer: Sync {
    /// Opens a connection for a load. A take waits for jobs up to `wait` if the server can do that.
    fn connect<'a>(
        &'a self,
        load: &'a Load,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Link>, Error>>;

    /// What the server has used so far; the default knows nothing.
    fn used(&self) -> BoxFuture<'_, Used> {
        std::future::ready(Used::default()).boxed()
    }

    /// Whether calls block their thread.
    fn blocks(&self) -> bool {
        false
    }
}

/// One connection and the jobs that it holds. Enqueues and takes are as large as the batch of its load.
pub trait Link: Send {
    /// Sets the payload of the enqueues to come; it is that of the load at first.
    fn prepare(&mut self, payload: &[u8]);

    /// Enqueues a batch; returns when it is durable.
    fn enqueue(&mut self) -> BoxFuture<'_, Result<(), Error>>;

    /// Takes up to a batch and passes each payload to `see`.
    fn take<'a>(
        &'a mut self,
        see: &'a mut (dyn FnMut(&[u8]) + Send),
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Completes what was taken last and returns the number of those jobs; they are durably completed then.
    fn complete(&mut self) -> BoxFuture<'_, Result<usize, Error>>;
}

/// The driver of a peer.
pub struct Calls<P>(pub P);

impl<P: Peer> Calls<P> {
    async fn link(&self, load: &Load, wait: Duration) -> Result<Box<dyn Link>, Error> {
        self.0.connect(load, wait).await
    }
}

impl<P: Peer> Driver for Calls<P> {
    fn used(&self) -> BoxFuture<'_, Used> {
        self.0.used()
    }

    fn blocks(&self) -> bool {
        self.0.blocks()
    }

    fn fill<'a>(&'a self, load: &'a Arc<Load>, quota: &'a Arc<Quota>) -> Connecting<'a> {
        async move {
            let mut link = self.link(load, Duration::ZERO).await?;
            let quota = Arc::clone(quota);
            let task = async move {
                while quota.take() {
                    link.enqueue().await?;
                }
                Ok(())
            };
            Ok(task.boxed())
        }
        .boxed()
    }

    fn produce<'a>(&'a self, load: &'a Arc<Load>) -> Connecting<'a> {
        async move {
            let mut link = self.link(load, Duration::ZERO).await?;
            let load = Arc::clone(load);
            let task = async move {
                while load.has_room().await {
                    link.enqueue().await?;
                    load.note_enqueued(load.batch);
                }
                Ok(())
            };
            Ok(task.boxed())
        }
        .boxed()
    }

    fn consume<'a>(&'a self, _: usize, load: &'a Arc<Load>) -> Connecting<'a> {
        async move {
            let mut link = self.link(load, Duration::from_secs(1)).await?;
            let load = Arc::clone(load);
            let task = async move {
                while !load.is_stopped() {
                    link.take(&mut |_| ()).await?;
                    load.note_completed(link.complete().await?);
                }
                Ok(())
            };
            Ok(task.boxed())
        }
        .boxed()
    }

    fn live<'a>(
        &'a self,
        _: usize,
        load: &'a Arc<Load>,
    ) -> BoxFuture<'a, Result<(Task, Option<Task>), Error>> {
        async move {
            let mut link = self.link(load, Duration::ZERO).await?;
            let load = Arc::clone(load);
            let task = async move {
                while !load.is_over() {
                    link.enqueue().await?;
                    load.note_enqueued(load.batch);
                    // All connections take from one queue: another one may have taken a part of these jobs, then this
                    // one takes theirs.
                    link.take(&mut |_| ()).await?;
                    load.note_completed(link.complete().await?);
                }
                Ok(())
            };
            Ok((task.boxed(), None))
        }
        .boxed()
    }

    fn pace<'a>(
        &'a self,
        load: &'a Arc<Load>,
        pace: &'a Arc<Pace>,
    ) -> BoxFuture<'a, Result<Vec<Task>, Error>> {
        async move {
            let mut tasks = Vec::new();
            for _ in 0..LATENCY_CONNECTIONS {
                let worker = self.link(load, Duration::from_secs(10)).await?;
                tasks.push(work(worker, Arc::clone(pace)).boxed());
                let producer = self.link(load, Duration::ZERO).await?;
                tasks.push(produce_at(producer, Arc::clone(pace)).boxed());
            }
            Ok(tasks)
        }
        .boxed()
    }
}

async fn produce_at(mut link: Box<dyn Link>, pace: Arc<Pace>) -> Result<(), Error> {
    while let Some(payload) = pace.next().await {
        link.prepare(&payload);
        link.enqueue().await?;
    }
    Ok(())
}

async fn work(mut link: Box<dyn Link>, pace: Arc<Pace>) -> Result<(), Error> {
    while !pace.is_over() {
        link.take(&mut |payload| pace.started(payload)).await?;
        link.complete().await?;
    }
    Ok(())
}
