//! Producers and consumers at once: on an empty queue, and above jobs that wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{enqueue, running};
use crate::tasks::Tasks;
use crate::{Error, Load, Measured, Messages, Peer, Role, Shape};

/// How the deep queue is filled.
const FILL_CONNECTIONS: usize = 4;
const FILL: Messages = Messages::new(1_000, 2);

/// Time that a server has to accept the deep queue.
const FILL_MAX: Duration = Duration::from_secs(3_600);

/// Jobs per second that are completed while producers and consumers work at once.
pub async fn measure(
    peer: &dyn Peer,
    load: &Arc<Load>,
    shape: &Shape,
    time: Duration,
) -> Result<Measured, Error> {
    let producers = enqueue::producers(peer, load, shape).await?;
    let mut consumers = Tasks::default();
    let count = shape.consumers;
    consumers
        .consume(peer, load, Role::Consume, count, None)
        .await?;
    running(peer, load, [producers, consumers], Load::completed, time).await
}

/// The same flow above so many jobs that wait.
pub async fn deep(
    peer: &dyn Peer,
    load: &Arc<Load>,
    shape: &Shape,
    waiting: u64,
    time: Duration,
) -> Result<Measured, Error> {
    fill(peer, &load.queue, load.payload().len(), waiting).await?;
    // The server writes its backlog first, as it would on the way to so many jobs.
    sleep(Duration::from_secs(1)).await;
    measure(peer, load, shape, time).await
}

/// Enqueues so many jobs, however long that takes.
pub(crate) async fn fill(
    peer: &dyn Peer,
    queue: &str,
    payload_bytes: usize,
    jobs: u64,
) -> Result<(), Error> {
    let load = Load::new(queue.to_owned(), payload_bytes, 1, None);
    enqueue::fill(peer, &load, FILL_CONNECTIONS, FILL, jobs, FILL_MAX).await?;
    if load.enqueued() < jobs {
        let enqueued = load.enqueued();
        return Err(Error::failed(format!(
            "only {enqueued} of {jobs} jobs were enqueued in {FILL_MAX:?}"
        )));
    }
    Ok(())
}
