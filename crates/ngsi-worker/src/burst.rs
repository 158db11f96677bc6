//! Whether a pool that works until its queue is empty has come to its end.

use std::time::Duration;

use crate::Error;
use crate::source::ServerQueries;

/// How often the server is asked while something seems to be on its way.
const ASK_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until nothing of the queue is ready, and nothing is held by this pool. It is to be asked only while nothing
/// is in hand here, and dropped as soon as something comes.
///
/// Tasks that wait for a retry, or run elsewhere, do not count.
pub(crate) async fn drained(server: &impl ServerQueries) -> Result<(), Error> {
    loop {
        // In this order: what was ready a moment ago may be held by now, on its way to us.
        let queue_state = server.queue_state().await?;
        let has_nothing_ready = queue_state.ready == 0 || queue_state.is_paused;
        if has_nothing_ready && server.held_tasks().await? == 0 {
            return Ok(());
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}
