//! Enqueueing alone.

use std::sync::Arc;
use std::time::Duration;

use super::running;
use crate::supply::{Quota, Supply};
use crate::tasks::Tasks;
use crate::{Error, Load, Measured, Messages, Peer, Shape};

/// Jobs per second that the producers enqueue.
pub async fn measure(
    peer: &dyn Peer,
    load: &Arc<Load>,
    shape: &Shape,
    time: Duration,
) -> Result<Measured, Error> {
    let producers = producers(peer, load, shape).await?;
    let tasks = [producers, Tasks::default()];
    running(peer, load, tasks, Load::enqueued, time).await
}

/// The producers of a load, which send as long as it has room.
pub(super) async fn producers(
    peer: &dyn Peer,
    load: &Arc<Load>,
    shape: &Shape,
) -> Result<Tasks, Error> {
    let mut producers = Tasks::default();
    for messages in &shape.producers {
        let supply = Supply::Room(Arc::clone(load), messages.jobs);
        producers.produce(peer, load, *messages, supply).await?;
    }
    Ok(producers)
}

/// Enqueues so many jobs or a little more, or what a slow server accepts within `time_max`.
pub(crate) async fn fill(
    peer: &dyn Peer,
    load: &Arc<Load>,
    connections: usize,
    messages: Messages,
    jobs: u64,
    time_max: Duration,
) -> Result<(), Error> {
    let quota = Quota::new(messages.jobs, jobs, time_max);
    let mut producers = Tasks::default();
    for _ in 0..connections {
        let supply = Supply::Quota(Arc::clone(&quota));
        producers.produce(peer, load, messages, supply).await?;
    }
    producers.finish().await
}
