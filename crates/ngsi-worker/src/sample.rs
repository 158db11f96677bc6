//! Samples the length of the queue once a second, for the metrics.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::metrics::Metrics;
use crate::source::{ServerQueries, is_final};

/// Interval between two samples: one second.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Samples until the runtime ends, or a query fails permanently.
pub(crate) async fn sample_queue(server: impl ServerQueries, metrics: Arc<Metrics>) {
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match server.queue_state().await {
            Ok(queue_state) => metrics.set_queue_size(Some(queue_state.pending)),
            Err(error) => {
                metrics.set_queue_size(None);
                if is_final(&error) {
                    tracing::warn!(%error, "the length of the queue is not in the metrics, because the server refuses the query");
                    return;
                }
            }
        }
    }
}
