//! The driver for connections with one call at a time.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::driver::{Connection, Driver, Work};
use crate::enqueue::Quota;
use crate::latency::Pace;
use crate::{Error, Load, Used};

/// Number of connections that enqueue while the time to the start of a job is measured, and number that wait for jobs.
const LATENCY_CONNECTIONS: usize = 16;

/// A queue server whose connections have one call at a time.
pub trait Peer: Sync {
    /// Opens a connection for a load. Its lease requests wait up to `wait` for jobs if the server supports that.
    fn connect<'a>(
        &'a self,
        load: &'a Load,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Link>, Error>>;

    /// Returns the resources that the server has used so far; unknown by default.
    fn used(&self) -> BoxFuture<'_, Used> {
        std::future::ready(Used::default()).boxed()
    }

    /// Whether calls block the calling thread.
    fn blocks(&self) -> bool {
        false
    }
}

/// A connection and the jobs that it has leased. Each call is for a batch of its load.
pub trait Link: Send {
    /// Sets the payload of later enqueues; at first it is that of the load.
    fn prepare(&mut self, payload: &[u8]);

    /// Enqueues a batch; returns when it is durable.
    fn enqueue(&mut self) -> BoxFuture<'_, Result<(), Error>>;

    /// Leases up to a batch of jobs; passes each payload to `see`.
    fn take<'a>(
        &'a mut self,
        see: &'a mut (dyn FnMut(&[u8]) + Send),
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Completes the jobs leased last; returns their number when that is durable.
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
        // All connections lease from one queue, so this one may complete jobs of others, and others its own.
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
