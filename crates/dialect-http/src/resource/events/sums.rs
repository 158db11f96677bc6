//! Sums of events: how many jobs of each queue made which change, once in a while.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_document::names::text;
use ganger_shard::Subscription;
use ganger_types::{Event, Happening, JobState, Position, Queue};
use serde::Serialize;

use super::{Filter, final_problem, heartbeat_text, kind};
use crate::request_context::RequestContext;
use crate::stream::Pieces;

/// Sums of one message. Further ones are added up as `other`.
const SUMS_MAX: usize = 1_000;

/// What is added up: the kind of the event, the queue, and the states.
type Key = (
    &'static str,
    Option<Queue>,
    Option<JobState>,
    Option<JobState>,
);

/// The events of one interval.
#[derive(Default)]
struct Sums {
    counts: BTreeMap<Key, u64>,
    other: u64,
    newest: Option<Position>,
}

/// A sum of events, as a document.
#[derive(Serialize)]
struct SumView {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'static str>,
    count: u64,
}

/// The sums of an interval, as a document.
#[derive(Serialize)]
struct SumsView {
    sums: Vec<SumView>,
    other: u64,
}

impl Sums {
    fn add(&mut self, event: &Event) {
        let (queue, from, to) = match &event.happening {
            Happening::JobMoved {
                queue, from, to, ..
            } => (Some(queue), *from, Some(*to)),
            Happening::JobRemoved { queue, .. } | Happening::QueueChanged { queue, .. } => {
                (Some(queue), None, None)
            }
            _ => (None, None, None),
        };
        let key = (kind(&event.happening), queue.cloned(), from, to);
        if self.counts.len() < SUMS_MAX || self.counts.contains_key(&key) {
            *self.counts.entry(key).or_default() += 1;
        } else {
            self.other += 1;
        }
    }

    /// The message for the interval; a heartbeat if nothing happened.
    fn take(&mut self) -> String {
        let sums = std::mem::take(&mut self.counts).into_iter();
        let sums = sums.map(|((event, queue, from, to), count)| SumView {
            event,
            queue: queue.map(|queue| text(queue.as_bytes())),
            from: from.map(JobState::as_str),
            to: to.map(JobState::as_str),
            count,
        });
        let view = SumsView {
            sums: sums.collect(),
            other: std::mem::take(&mut self.other),
        };
        let Some(newest) = self.newest.filter(|_| !view.sums.is_empty()) else {
            return heartbeat_text(self.newest);
        };
        let data = serde_json::to_string(&view).expect("our documents are plain data");
        format!("id: {}\nevent: sums\ndata: {data}\n\n", newest.0)
    }
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
    let mut sums = Sums::default();
    let mut sent = pieces.send(": ganger events\n\n").await;
    let mut interval = tokio::time::interval(every);
    interval.tick().await;
    while sent.is_ok() {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = pieces.closed() => return,
            event = events.next() => match event {
                Ok(event) => {
                    sums.newest = Some(event.position);
                    if filter.takes(&event) {
                        sums.add(&event);
                    }
                }
                Err(error) => {
                    let _ = pieces.send(final_problem(error)).await;
                    return;
                }
            },
            _ = interval.tick() => sent = pieces.send(sums.take()).await,
        }
    }
}
