//! Server-sent events, with positions to resume from.
//!
//! The id of each event is its position. While no event matches the filter, heartbeats advance the reader's position,
//! so that it resumes close to the present.

mod sums;

use std::pin::pin;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use ganger_document::view::event::{self, KINDS, PAST_DEFAULT, PAST_LOOKED_MAX, PAST_MAX, kind};
use ganger_document::view::event_sums::SUMS_EVERY;
use ganger_shard::{CallError, Subscription};
use ganger_types::{Event, Happening, JobId, Namespace, Position, Queue, ShardId};
use http::{HeaderValue, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::arguments::refused;
use crate::json;
use crate::problem::Problem;
use crate::request_context::{RequestContext, bad_header};
use crate::stream::{self, Pieces, ReaderGone};

/// Header in which a browser sends the id of the last event that it received.
const LAST_EVENT_ID: &str = "last-event-id";
/// Interval between two heartbeats.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
/// Longest time for which a stream waits for the end of a shard that moves to another node.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// Events that were read back.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Events)]
pub(crate) struct EventsView {
    /// Events of the page, the newest first.
    events: Vec<event::Event>,
    /// Position of the oldest event that is kept.
    oldest: u64,
    /// Position behind the newest event; `after` this number less one, a stream goes on without a gap.
    end: u64,
    /// Value of `before` for the next page; absent if nothing older is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// The conditions of an event stream, all of which an event must meet.
struct Filter {
    namespace: Namespace,
    queue: Option<Queue>,
    job: Option<JobId>,
    kinds: Vec<&'static str>,
}

pub(crate) async fn follow(context: RequestContext) -> Result<Response, Problem> {
    let filter = filter(&context)?;
    let every = every(&context)?;
    if ["limit", "before"]
        .into_iter()
        .any(|name| context.arguments.has(name))
    {
        return past(&context, &filter);
    }
    let events = context.shard().events(resume_from(&context)?)?;
    let (pieces, body) = stream::open(&context)?;
    match every {
        None => tokio::spawn(run(context, filter, events, pieces)),
        Some(every) => tokio::spawn(sums::run(context, filter, events, pieces, every)),
    };
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, body).into_response())
}

/// Reads back what is kept.
fn past(context: &RequestContext, filter: &Filter) -> Result<Response, Problem> {
    if context.arguments.has("every") || context.arguments.has("after") {
        let reason = "reads events back: leave out every and after";
        return Err(refused("limit", reason));
    }
    let limit = context.arguments.number("limit", 1, u64::from(PAST_MAX))?;
    let limit = usize::try_from(limit.unwrap_or(PAST_DEFAULT.into())).unwrap_or(usize::MAX);
    let before = context
        .arguments
        .number("before", 0, u64::MAX)?
        .map(Position);
    let shard = context.shard();
    let past = shard.past_events(before, limit, PAST_LOOKED_MAX, |event| filter.takes(event))?;
    let events = past.events.into_iter();
    Ok(json::ok(&EventsView {
        events: events
            .map(|event| event::Event::new(shard.id(), event))
            .collect(),
        oldest: past.oldest.0,
        end: past.end.0,
        next: past.next.map(|position| position.0),
    }))
}

/// How often sums are sent; `None`: each event is.
fn every(context: &RequestContext) -> Result<Option<Duration>, Problem> {
    let every = context.arguments.span("every")?;
    if every.is_some_and(|every| !SUMS_EVERY.contains(&every)) {
        return Err(refused("every", "must be from 1s to 60s"));
    }
    Ok(every)
}

fn filter(context: &RequestContext) -> Result<Filter, Problem> {
    let mut kinds = Vec::new();
    for word in context
        .arguments
        .text("event")?
        .unwrap_or_default()
        .split(',')
        .filter(|w| !w.is_empty())
    {
        let known = KINDS.iter().find(|known| **known == word);
        let known = known.ok_or_else(|| {
            refused(
                "event",
                &format!("{word:?} is not a kind of event: {}", KINDS.join(", ")),
            )
        })?;
        kinds.push(*known);
    }
    Ok(Filter {
        namespace: context.namespace.clone(),
        queue: context.arguments.name("queue")?,
        job: context
            .arguments
            .job("job")
            .map(|job| {
                context
                    .api
                    .resolve(&job, || "query parameter job".to_owned())
            })
            .transpose()?,
        kinds,
    })
}

/// The position after which to resume. The header, which a browser sends by itself, takes precedence over the
/// parameter.
fn resume_from(context: &RequestContext) -> Result<Option<Position>, Problem> {
    if let Some(position) = context.continue_at()? {
        return Ok(Some(Position(position)));
    }
    if let Some(value) = context.headers.get(LAST_EVENT_ID) {
        let position = value.to_str().ok().and_then(|text| text.parse().ok());
        return position
            .map(|position| Some(Position(position)))
            .ok_or_else(|| bad_header(LAST_EVENT_ID, "is not the id of one of our events"));
    }
    Ok(context
        .arguments
        .number("after", 0, u64::MAX)?
        .map(Position))
}

async fn run(context: RequestContext, filter: Filter, mut events: Subscription, pieces: Pieces) {
    let mut stopped = pin!(stopped(&context));
    let mut seen = None;
    // A first comment shows the reader at once that the stream is open.
    let mut sent = pieces.send(": ganger events\n\n").await;
    let mut heartbeat = tokio::time::interval(HEARTBEAT_EVERY);
    heartbeat.tick().await;
    while sent.is_ok() {
        sent = tokio::select! {
            () = &mut stopped => return end(&context, &events, pieces, None).await,
            () = pieces.closed() => return,
            event = events.next() => match event {
                Ok(event) => {
                    seen = Some(event.position);
                    if filter.takes(&event) {
                        send(context.shard().id(), &pieces, event).await
                    } else {
                        Ok(())
                    }
                }
                Err(error) => return end(&context, &events, pieces, Some(error)).await,
            },
            _ = heartbeat.tick() => pieces.send(heartbeat_text(seen)).await,
        };
    }
}

/// Completes when the stream must end: when the server stops, or the shard leaves it. A stream that goes on at another
/// node ends when the shard has closed, and so misses nothing; this is only a limit for it.
async fn stopped(context: &RequestContext) {
    context.api.settings().stopping.cancelled().await;
    if context.continued().is_some() {
        tokio::time::sleep(CLOSED_WITHIN).await;
    }
}

/// Ends the stream, because of an error or because the server stops. A stream whose shard has closed goes on at the
/// shard's next node, behind the last event that was returned.
async fn end(
    context: &RequestContext,
    events: &Subscription,
    pieces: Pieces,
    error: Option<CallError>,
) {
    let is_of_reader = matches!(error, Some(CallError::PositionTooOld { .. }));
    if context.continued().is_some() && !is_of_reader {
        let place = events
            .position()
            .map(|position| position.0.to_string())
            .unwrap_or_default();
        pieces.continue_at(&place).await;
    } else if let Some(error) = error {
        // The reader may be gone.
        pieces.send(final_problem(error)).await.ok();
    }
}

async fn send(shard: &ShardId, pieces: &Pieces, event: Event) -> Result<(), ReaderGone> {
    let (position, kind) = (event.position.0, kind(&event.happening));
    let data = serde_json::to_string(&event::Event::new(shard, event))
        .expect("our documents are plain data");
    pieces
        .send(format!("id: {position}\nevent: {kind}\ndata: {data}\n\n"))
        .await
}

/// A heartbeat. An id without data advances the reader's position without calling a handler.
fn heartbeat_text(seen: Option<Position>) -> String {
    seen.map_or_else(
        || ":\n\n".to_owned(),
        |position| format!(":\nid: {}\n\n", position.0),
    )
}

/// The last event of a stream that fails, with the problem.
fn final_problem(error: CallError) -> String {
    let problem = Problem::from(error);
    let data = serde_json::to_string(&problem.view()).expect("a problem is plain data");
    format!("event: error\ndata: {data}\n\n")
}

impl Filter {
    fn takes(&self, event: &Event) -> bool {
        event.namespace == self.namespace
            && (self.kinds.is_empty() || self.kinds.contains(&kind(&event.happening)))
            && self
                .queue
                .as_ref()
                .is_none_or(|queue| queue_of(&event.happening) == Some(queue))
            && self
                .job
                .as_ref()
                .is_none_or(|job| job_of(&event.happening) == Some(job))
    }
}

fn queue_of(happening: &Happening) -> Option<&Queue> {
    match happening {
        Happening::JobMoved { queue, .. }
        | Happening::JobRemoved { queue, .. }
        | Happening::QueueChanged { queue, .. } => Some(queue),
        _ => None,
    }
}

fn job_of(happening: &Happening) -> Option<&JobId> {
    match happening {
        Happening::JobMoved { job, .. }
        | Happening::JobProgressed { job, .. }
        | Happening::JobRemoved { job, .. } => Some(job),
        _ => None,
    }
}
