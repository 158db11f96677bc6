//! Sums of events, sent at an interval.

use std::time::Duration;

use ganger_document::view::event_sums::EventSums;
use ganger_shard::Subscription;

use super::{Filter, final_problem, heartbeat_text};
use crate::request_context::RequestContext;
use crate::stream::Pieces;

/// The message for an interval; a heartbeat if nothing happened.
fn message(sums: &mut EventSums) -> String {
    let view = sums.take();
    let Some(newest) = sums.newest().filter(|_| !view.sums.is_empty()) else {
        return heartbeat_text(sums.newest());
    };
    let data = serde_json::to_string(&view).expect("our documents are plain data");
    format!("id: {}\nevent: sums\ndata: {data}\n\n", newest.0)
}

/// Sends sums until the reader is gone or the server stops.
pub(super) async fn run(
    context: RequestContext,
    filter: Filter,
    mut events: Subscription,
    pieces: Pieces,
    every: Duration,
) {
    let stopping = context.api.settings().stopping.clone();
    let mut sums = EventSums::default();
    let mut sent = pieces.send(": ganger events\n\n").await;
    let mut interval = tokio::time::interval(every);
    interval.tick().await;
    while sent.is_ok() {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = pieces.closed() => return,
            event = events.next() => match event {
                Ok(event) => {
                    sums.advance(&event);
                    if filter.takes(&event) {
                        sums.add(&event);
                    }
                }
                Err(error) => {
                    let _ = pieces.send(final_problem(error)).await;
                    return;
                }
            },
            _ = interval.tick() => sent = pieces.send(message(&mut sums)).await,
        }
    }
}
