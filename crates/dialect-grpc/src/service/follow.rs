//! Server streams: events, and a job's log as it grows.

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt as _;
use ganger_access::StreamPermit;
use ganger_document::view::event::{PAST_DEFAULT, PAST_LOOKED_MAX, PAST_MAX};
use ganger_document::view::event_sums::{EventSums, IntervalSums, SUMS_EVERY};
use ganger_proto::{convert, v1};
use ganger_shard::StoredJob;
use ganger_shard::Subscription;
use ganger_types::{Event, Happening, JobId, JobRecord, Namespace, Position, Queue, ShardId};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Streamed;
use super::jobs::LogAsked;
use crate::ServiceContext;
use crate::authorization;
use crate::decode::{self, At};
use crate::encode;
use crate::problem::Problem;

/// Messages made before the reader took them.
const MESSAGES_MAX: usize = 4;
/// Events in one message.
const EVENTS_MAX: usize = 256;
/// A message is sent at least so often, so that both sides know the other lives.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(15);
/// Time after which a stream that goes on at another node ends, although its shard has not closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);
/// A reader that takes nothing for so long is cut (`rel B6`).
const READER_SLOW_MAX: Duration = Duration::from_secs(30);

/// Sends, or says that the reader is gone or too slow.
async fn send<T>(
    out: &mpsc::Sender<Result<T, Status>>,
    message: Result<T, Status>,
) -> Result<(), ()> {
    out.send_timeout(message, READER_SLOW_MAX)
        .await
        .map_err(|_| ())
}

/// Which events a reader wants.
pub(crate) struct Wanted {
    /// The shard of the events; their jobs are shown as `shard/id`.
    shard: ShardId,
    namespace: Namespace,
    jobs: HashSet<JobId>,
    queues: HashSet<Queue>,
    moves_only: bool,
}

impl Wanted {
    /// Reads the conditions of a request, which `moves_only` is one of.
    fn new(
        here: &ShardId,
        namespace: &str,
        (jobs, queues): (&[String], &[String]),
        moves_only: bool,
    ) -> Result<Self, Problem> {
        decode::at_most(
            At::top("jobs"),
            jobs.len(),
            ganger_types::limits::BULK_JOBS_MAX,
        )?;
        decode::at_most(
            At::top("queues"),
            queues.len(),
            ganger_types::limits::LEASE_QUEUES_MAX,
        )?;
        let queues = queues.iter().enumerate();
        Ok(Self {
            shard: here.clone(),
            namespace: decode::namespace(namespace)?,
            jobs: decode::each_job(here, At::top("jobs"), jobs)?,
            queues: queues
                .map(|(index, text)| decode::queue(At::top("queues").entry(index), text))
                .collect::<Result<_, _>>()?,
            moves_only,
        })
    }

    fn takes(&self, event: &Event) -> bool {
        let (job, queue, is_move) = match &event.happening {
            Happening::JobMoved { job, queue, .. } | Happening::JobRemoved { job, queue, .. } => {
                (Some(job), Some(queue), true)
            }
            Happening::JobProgressed { job, .. } => (Some(job), None, false),
            Happening::LogAppended { .. } => (None, None, false),
            Happening::QueueChanged { queue, .. } => (None, Some(queue), true),
            Happening::ScheduleChanged { .. }
            | Happening::WorkerSeen { .. }
            | Happening::WorkerGone { .. } => (None, None, true),
        };
        event.namespace == self.namespace
            && (is_move || !self.moves_only)
            && (self.jobs.is_empty() || job.is_some_and(|job| self.jobs.contains(job)))
            && (self.queues.is_empty() || queue.is_some_and(|queue| self.queues.contains(queue)))
    }
}

impl ServiceContext {
    /// The stream of events. One that goes on at another node ends when the shard has closed, and so misses nothing.
    pub(crate) fn event_stream(
        &self,
        request: &v1::EventsRequest,
        is_continued: bool,
    ) -> Result<Streamed<v1::EventBatch>, Problem> {
        let conditions = (&*request.jobs, &*request.queues);
        let wanted = Wanted::new(
            self.handle.id(),
            &request.namespace,
            conditions,
            request.moves_only,
        )?;
        let every = request.every_ms.map(sums_every).transpose()?;
        let subscription = self.handle.events(request.after.map(Position))?;
        let place = self.stream_permit()?;
        let (out, receiver) = mpsc::channel(MESSAGES_MAX);
        tokio::spawn(async move {
            // When it ends, the reader has gone.
            let ended = match every {
                None => stream_events(wanted, subscription, out).await,
                Some(every) => stream_sums(wanted, subscription, out, every).await,
            };
            ended.ok();
            drop(place);
        });
        let events = ReceiverStream::new(receiver);
        if is_continued {
            let stopping = self.options.stopping.clone();
            let limit = async move {
                stopping.cancelled().await;
                tokio::time::sleep(CLOSED_WITHIN).await;
            };
            return Ok(Box::pin(events.take_until(Box::pin(limit))));
        }
        Ok(self.until_stopping(events))
    }

    /// Reads back events that are kept.
    pub(crate) fn past_events(
        &self,
        request: &v1::PastEventsRequest,
    ) -> Result<v1::PastEventsReply, Problem> {
        let conditions = (&*request.jobs, &*request.queues);
        let wanted = Wanted::new(
            self.handle.id(),
            &request.namespace,
            conditions,
            request.moves_only,
        )?;
        let limit = decode::bounded(At::top("limit"), request.limit, PAST_DEFAULT, PAST_MAX)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let before = request.before.map(Position);
        let is_wanted = |event: &Event| wanted.takes(event);
        let past = self
            .handle
            .past_events(before, limit, PAST_LOOKED_MAX, is_wanted)?;
        let events = past.events.into_iter();
        Ok(v1::PastEventsReply {
            events: events
                .map(|event| convert::event_message(&wanted.shard, event))
                .collect(),
            oldest: past.oldest.0,
            end: past.end.0,
            next: past.next.map(|position| position.0),
        })
    }

    /// A place among the open streams.
    pub(crate) fn stream_permit(&self) -> Result<StreamPermit, Problem> {
        let place = self.options.streams.take(authorization::owner());
        place.map_err(|full| Problem::new("overloaded", full.to_string()))
    }

    /// A piece of a job's log; it is the end if the job has ended and there is no more.
    pub(crate) async fn log_piece(
        &self,
        stored: &StoredJob,
        place: (u32, u64),
        bytes_max: usize,
    ) -> Result<v1::LogReply, Problem> {
        let has_ended = stored.record.finished.is_some();
        let chunks = self.handle.log(stored.record.key, place, bytes_max).await?;
        let end = has_ended && chunks.is_empty();
        Ok(encode::log_page(chunks, place, end))
    }

    pub(crate) fn log_stream(
        self,
        asked: LogAsked,
        permit: StreamPermit,
    ) -> Streamed<v1::LogReply> {
        let (out, receiver) = mpsc::channel(MESSAGES_MAX);
        let stream = self.until_stopping(ReceiverStream::new(receiver));
        tokio::spawn(async move {
            if let Err(Some(problem)) = self.stream_log(asked, &out).await {
                send(&out, Err(problem.into())).await.ok();
            }
            drop(permit);
        });
        stream
    }

    /// Sends pieces until the end; an error without a problem means that the reader has gone.
    async fn stream_log(
        &self,
        mut asked: LogAsked,
        out: &mpsc::Sender<Result<v1::LogReply, Status>>,
    ) -> Result<(), Option<Problem>> {
        // Subscribed before the log is read, so that what comes in between wakes us.
        let mut events = self.handle.events(None).map_err(Problem::from)?;
        loop {
            let found = self
                .handle
                .job(&asked.namespace, &asked.id)
                .await
                .map_err(Problem::from)?;
            let Some(stored) = found else {
                return Err(Some(self.missing(&asked.namespace, &asked.id).await));
            };
            let piece = self
                .log_piece(&stored, asked.place, asked.bytes_max)
                .await?;
            let (is_end, is_empty) = (piece.end, piece.chunks.is_empty());
            asked.place = (piece.attempt, piece.offset);
            if is_end || !is_empty {
                send(out, Ok(piece)).await.map_err(|()| None)?;
            }
            if is_end {
                return Ok(());
            }
            if is_empty {
                self.log_may_have_grown(&stored.record, &mut events, asked.place, out)
                    .await?;
            }
        }
    }

    /// Waits for news of the job, giving signs of life meanwhile.
    async fn log_may_have_grown(
        &self,
        wanted: &JobRecord,
        events: &mut Subscription,
        place: (u32, u64),
        out: &mpsc::Sender<Result<v1::LogReply, Status>>,
    ) -> Result<(), Option<Problem>> {
        loop {
            match tokio::time::timeout(SIGN_OF_LIFE_EVERY, events.next()).await {
                Ok(Ok(event)) if concerns_log(&event.happening, wanted) => return Ok(()),
                Ok(Ok(_)) => {}
                // Fallen behind: the log itself tells what was missed.
                Ok(Err(ganger_shard::CallError::PositionTooOld { .. })) => {
                    *events = self.handle.events(None).map_err(Problem::from)?;
                    return Ok(());
                }
                Ok(Err(error)) => return Err(Some(error.into())),
                Err(_) => {
                    let sign = encode::log_page(Vec::new(), place, false);
                    send(out, Ok(sign)).await.map_err(|()| None)?;
                }
            }
        }
    }
}

/// Whether an event may be the reason why a job's log is longer, or at its end. Jobs of qless have one key, and so are
/// told apart by their ids.
fn concerns_log(happening: &Happening, wanted: &JobRecord) -> bool {
    match happening {
        Happening::LogAppended { key, .. } => *key == wanted.key,
        Happening::JobRemoved { key, job, .. } | Happening::JobMoved { key, job, .. } => {
            *key == wanted.key && *job == wanted.id
        }
        _ => false,
    }
}

async fn stream_events(
    wanted: Wanted,
    mut events: Subscription,
    out: mpsc::Sender<Result<v1::EventBatch, Status>>,
) -> Result<(), ()> {
    let mut batch = Vec::new();
    loop {
        let position = events.position().map(|position| position.0);
        let message = v1::EventBatch {
            events: std::mem::take(&mut batch),
            position,
            ..v1::EventBatch::default()
        };
        send(&out, Ok(message)).await?;
        let silence = tokio::time::sleep(SIGN_OF_LIFE_EVERY);
        tokio::pin!(silence);
        // Until there is something to send: events that nobody wants move the position only.
        while batch.is_empty() {
            let next = tokio::select! {
                next = events.next() => next,
                () = &mut silence => break,
                () = out.closed() => return Err(()),
            };
            if let Err(error) = take(next, &wanted, &mut batch) {
                return end_events(batch, &events, &out, error).await;
            }
            // Whatever else is there already goes into the same message.
            while batch.len() < EVENTS_MAX {
                let Some(next) = futures::FutureExt::now_or_never(events.next()) else {
                    break;
                };
                if let Err(error) = take(next, &wanted, &mut batch) {
                    return end_events(batch, &events, &out, error).await;
                }
            }
        }
    }
}

/// Sends the last events and their position, which the reader may go on from, and then the reason why the stream ends.
async fn end_events(
    batch: Vec<v1::Event>,
    events: &Subscription,
    out: &mpsc::Sender<Result<v1::EventBatch, Status>>,
    error: Problem,
) -> Result<(), ()> {
    let last = v1::EventBatch {
        events: batch,
        position: events.position().map(|position| position.0),
        ..v1::EventBatch::default()
    };
    send(out, Ok(last)).await?;
    send(out, Err(error.into())).await
}

/// Reads how often sums are sent.
fn sums_every(milliseconds: u64) -> Result<Duration, Problem> {
    let every = decode::ms(milliseconds);
    if SUMS_EVERY.contains(&every) {
        return Ok(every);
    }
    let (least, most) = (SUMS_EVERY.start().as_millis(), SUMS_EVERY.end().as_millis());
    Err(Problem::invalid(
        At::top("every_ms"),
        format_args!("{milliseconds} is out of range: {least} to {most}"),
    ))
}

/// Sends the position at once, so that the reader knows of its subscription, and then sums at an interval.
async fn stream_sums(
    wanted: Wanted,
    mut events: Subscription,
    out: mpsc::Sender<Result<v1::EventBatch, Status>>,
    every: Duration,
) -> Result<(), ()> {
    let mut sums = EventSums::default();
    let mut interval = tokio::time::interval(every);
    loop {
        tokio::select! {
            () = out.closed() => return Err(()),
            next = events.next() => match next {
                Ok(event) if wanted.takes(&event) => sums.add(&event),
                Ok(_) => {}
                Err(error) => {
                    send(&out, Ok(sums_message(&mut sums, &events))).await?;
                    return send(&out, Err(Problem::from(error).into())).await;
                }
            },
            _ = interval.tick() => send(&out, Ok(sums_message(&mut sums, &events))).await?,
        }
    }
}

/// Takes the sums of an interval.
fn sums_message(sums: &mut EventSums, events: &Subscription) -> v1::EventBatch {
    let IntervalSums { sums, other } = sums.take();
    v1::EventBatch {
        events: Vec::new(),
        position: events.position().map(|position| position.0),
        sums: sums.into_iter().map(encode::event_sum).collect(),
        other,
    }
}

fn take(
    next: Result<Event, ganger_shard::CallError>,
    wanted: &Wanted,
    batch: &mut Vec<v1::Event>,
) -> Result<(), Problem> {
    let event = next?;
    if wanted.takes(&event) {
        batch.push(convert::event_message(&wanted.shard, event));
    }
    Ok(())
}
