//! The last events of a shard, read back from those that are kept.

use std::time::Duration;

use ganger_shard::{CallError, Handle};
use ganger_types::{Event, Position};

use crate::fault::Fault;

/// Events that are read back.
pub(crate) const KEPT: u64 = 2_000;
/// A subscription gives what is there at once; a longer wait means that there is no more.
const NO_MORE_AFTER: Duration = Duration::from_millis(20);

/// The last events, oldest first, and the position of the newest.
pub(crate) async fn last(
    shard: &Handle,
    after: Option<Position>,
) -> Result<(Vec<Event>, Position), Fault> {
    let newest = position(shard)?;
    let from = after.map_or(newest.0.saturating_sub(KEPT), |after| {
        after.0.max(newest.0.saturating_sub(KEPT))
    });
    let mut subscription = match shard.events(Some(Position(from))) {
        Err(CallError::PositionTooOld { oldest, .. }) => {
            shard.events(Some(Position(oldest.saturating_sub(1).max(from))))?
        }
        other => other?,
    };
    let mut events = Vec::new();
    while from + u64::try_from(events.len()).unwrap_or(u64::MAX) < newest.0 {
        match tokio::time::timeout(NO_MORE_AFTER, subscription.next()).await {
            Ok(Ok(event)) => {
                let is_last = event.position >= newest;
                events.push(event);
                if is_last {
                    break;
                }
            }
            Ok(Err(_)) | Err(_) => break,
        }
    }
    Ok((events, newest))
}

/// The position of the newest event; 0 before the first.
pub(crate) fn position(shard: &Handle) -> Result<Position, Fault> {
    Ok(shard.events(None)?.position().unwrap_or_default())
}
