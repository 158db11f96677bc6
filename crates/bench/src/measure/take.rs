//! Taking and completing jobs that wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Span, enqueue};
use crate::load::STALLED_AFTER;
use crate::tasks::Tasks;
use crate::{Error, Load, Measured, Messages, Peer, Role, Shape};

/// How the queue is filled: as fast as every server can.
const FILL_CONNECTIONS: usize = 4;
const FILL: Messages = Messages::new(100, 2);

/// The queue of a slow server is as long as it is after this time.
const FILL_MAX: Duration = Duration::from_secs(20);

/// Jobs that last for the time, if the consumers take so many a second.
pub(super) fn jobs(a_second: u32, time: Duration) -> u64 {
    let jobs = u128::from(a_second) * time.as_millis() / 1_000;
    u64::try_from(jobs).unwrap_or(u64::MAX)
}

/// Jobs per second that the consumers take and complete, of so many jobs that wait; until none is left or the time is
/// over.
pub async fn measure(
    peer: &dyn Peer,
    load: &Arc<Load>,
    shape: &Shape,
    jobs: u64,
    time: Duration,
) -> Result<Measured, Error> {
    enqueue::fill(peer, load, FILL_CONNECTIONS, FILL, jobs, FILL_MAX).await?;
    let span = Span::begin(peer, load, Load::completed).await;
    let mut consumers = Tasks::default();
    let count = shape.consumers;
    consumers
        .consume(peer, load, Role::Consume, count, None)
        .await?;
    // Being over the time is as good an end as an empty queue.
    let drained = timeout(time, load.drain()).await;
    span.until_first(load, Load::completed).await;
    let measured = span.end(peer, load, Load::completed).await;
    consumers.check()?;
    load.stop();
    consumers.stop().await;
    if drained == Ok(false) {
        let (completed, enqueued) = (load.completed(), load.enqueued());
        return Err(Error::failed(format!(
            "only {completed} of {enqueued} jobs were taken; none in the last {STALLED_AFTER:?}"
        )));
    }
    measured
}
