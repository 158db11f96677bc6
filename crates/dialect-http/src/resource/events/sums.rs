//! Sums of events, sent at an interval.

use std::pin::pin;
use std::time::Duration;

use ganger_document::view::event_sums::EventSums;
use ganger_shard::Subscription;

use super::{Filter, end, heartbeat_text, stopped};
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
    let mut stopped = pin!(stopped(&context));
    let mut sums = EventSums::default();
    let mut sent = pieces.send(": ganger events\n\n").await;
    let mut interval = tokio::time::interval(every);
    interval.tick().await;
    let error = loop {
        if sent.is_err() {
            return;
        }
        tokio::select! {
            () = &mut stopped => break None,
            () = pieces.closed() => return,
            event = events.next() => match event {
                Ok(event) => {
                    sums.advance(&event);
                    if filter.takes(&event) {
                        sums.add(&event);
                    }
                }
                Err(error) => break Some(error),
            },
            _ = interval.tick() => sent = pieces.send(message(&mut sums)).await,
        }
    };
    // The last interval is shorter.
    if pieces.send(message(&mut sums)).await.is_ok() {
        end(&context, &events, pieces, error).await;
    }
}
