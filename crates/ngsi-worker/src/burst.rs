//! Detects when a burst pool, which works until its queue is empty, is finished.

use std::time::Duration;

use crate::Error;
use crate::source::ServerQueries;

/// Interval between queries while tasks may still be on their way.
const ASK_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until no task of the queue is ready, and this pool holds none. Call it only while the pool has no task, and
/// drop it as soon as one arrives.
///
/// Tasks that wait for a retry, or run elsewhere, do not count.
pub(crate) async fn drained(server: &impl ServerQueries) -> Result<(), Error> {
    loop {
        // In this order: a task that was ready a moment ago may now be leased, on its way to this pool.
        let queue_state = server.queue_state().await?;
        let has_nothing_ready = queue_state.ready == 0 || queue_state.is_paused;
        if has_nothing_ready && server.held_tasks().await? == 0 {
            return Ok(());
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}
