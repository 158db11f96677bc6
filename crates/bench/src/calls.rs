//! The driver for connections that carry one call after the other.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::driver::{Connection, Driver, Work};
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

impl<P: Peer> Driver for Calls<P> {
    fn used(&self) -> BoxFuture<'_, Used> {
        self.0.used()
    }

    fn blocks(&self) -> bool {
        self.0.blocks()
    }

    fn connect<'a>(
        &'a self,
        work: Work,
        _: usize,
        load: &'a Arc<Load>,
    ) -> BoxFuture<'a, Result<Connection, Error>> {
        async move {
            let link = |wait| self.0.connect(load, Duration::from_secs(wait));
            let mut connection = Connection::default();
            let Connection { producers, workers } = &mut connection;
            let load = Arc::clone(load);
            match work {
                Work::Fill(quota) => producers.push(fill(link(0).await?, quota).boxed()),
                Work::Produce => producers.push(produce(link(0).await?, load).boxed()),
                Work::Consume => workers.push(consume(link(1).await?, load).boxed()),
                Work::Live => producers.push(live(link(0).await?, load).boxed()),
                Work::Pace(pace) => {
                    for _ in 0..LATENCY_CONNECTIONS {
                        workers.push(work_at(link(10).await?, Arc::clone(&pace)).boxed());
                        producers.push(produce_at(link(0).await?, Arc::clone(&pace)).boxed());
                    }
                }
            }
            Ok(connection)
        }
        .boxed()
    }
}

async fn fill(mut link: Box<dyn Link>, quota: Arc<Quota>) -> Result<(), Error> {
    while quota.take() {
        link.enqueue().await?;
    }
    Ok(())
}

async fn produce(mut link: Box<dyn Link>, load: Arc<Load>) -> Result<(), Error> {
    while load.has_room().await {
        link.enqueue().await?;
        load.note_enqueued(load.batch);
    }
    Ok(())
}

async fn consume(mut link: Box<dyn Link>, load: Arc<Load>) -> Result<(), Error> {
    while !load.is_stopped() {
        link.take(&mut |_| ()).await?;
        load.note_completed(link.complete().await?);
    }
    Ok(())
}

async fn live(mut link: Box<dyn Link>, load: Arc<Load>) -> Result<(), Error> {
    while !load.is_over() {
        link.enqueue().await?;
        load.note_enqueued(load.batch);
        // All connections take from one queue: another one may have taken a part of these jobs, then this one takes
        // theirs.
        link.take(&mut |_| ()).await?;
        load.note_completed(link.complete().await?);
    }
    Ok(())
}

async fn produce_at(mut link: Box<dyn Link>, pace: Arc<Pace>) -> Result<(), Error> {
    while let Some(payload) = pace.next().await {
        link.prepare(&payload);
        link.enqueue().await?;
    }
    Ok(())
}

async fn work_at(mut link: Box<dyn Link>, pace: Arc<Pace>) -> Result<(), Error> {
    while !pace.is_over() {
        link.take(&mut |payload| pace.started(payload)).await?;
        link.complete().await?;
    }
    Ok(())
}
