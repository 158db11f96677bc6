//! Full lives: jobs are enqueued, taken and completed, all at once.

use std::sync::Arc;
use std::time::Duration;

use super::running;
use crate::tasks::{Tasks, live};
use crate::{Error, Load, Measured, Messages, Peer};

/// Batches of each connection that may be enqueued and not completed.
pub(crate) const BATCHES_AHEAD: usize = 4;

/// A load for [`measure`] with so many connections.
pub fn load(queue: String, connections: usize, batch: usize, payload_bytes: usize) -> Arc<Load> {
    let ahead = connections * batch * BATCHES_AHEAD;
    Load::new(queue, payload_bytes, batch, Some(ahead))
}

/// Lives per second with so many connections, each with one batch unanswered.
///
/// A stream carries a producer and a worker at once; calls follow one after the other.
pub async fn measure(
    peer: &dyn Peer,
    load: &Arc<Load>,
    connections: usize,
    time: Duration,
) -> Result<Measured, Error> {
    let messages = Messages::new(load.take, 1);
    let (mut producers, mut consumers) = (Tasks::default(), Tasks::default());
    for _ in 0..connections {
        live(peer, load, messages, [&mut producers, &mut consumers]).await?;
    }
    running(peer, load, [producers, consumers], Load::completed, time).await
}
