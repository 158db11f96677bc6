//! Streams of batches that outlive a move of their shard to another node of the cluster.
//!
//! The client's stream ends at the node that the client is connected to. This node passes batches on to the owner of the
//! shard, and keeps them until they are answered. An owner that gives its shard up answers the batches that it has taken
//! and ends the stream; the rest is sent to the next owner. If an owner dies, nobody knows what became of the batches that
//! it had not answered: they are sent again only if each has an idempotency key.

mod envelope;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::body::Body;
use ganger_access::BytesInProcess;
use http::{Request, Response};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Code, Status, Streaming};

use crate::inner_stream::{
    AWAY_MAX, Connect, FromShard, InnerStreams, Side, client_messages, respond,
};
use crate::problem::Problem;
use envelope::{AnswerEnvelope, BatchEnvelope};

/// Path of the stream that submits batches.
pub const ENQUEUE_STREAM: &str = "/ganger.v1.Jobs/EnqueueStream";
/// Batches of one stream without an answer; beyond it nothing more is read.
const BATCHES_MAX: usize = 1_024;
/// Bytes of those batches together; a single larger batch still fits.
const BATCHES_BYTES_MAX: usize = 2 << 20;

/// Relays streams of batches to their shards.
pub struct EnqueueRelay {
    /// Cancelled when this server stops: what was passed on is answered, and nothing more is read.
    pub stopping: CancellationToken,
    /// Number of inner streams that were opened again.
    pub reopened: Arc<AtomicU64>,
}

impl EnqueueRelay {
    /// Answers the request that opens a stream of batches. It is relayed until the client ends it, the server stops, or the
    /// shard cannot be reached for half a minute.
    pub async fn answer(&self, request: Request<Body>, connect: Connect) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let in_process = head.extensions.remove::<BytesInProcess>();
        let streams = InnerStreams::new(head, connect, Arc::clone(&self.reopened));
        let (to_shard, batches) = mpsc::unbounded_channel();
        let opened = streams.open(UnboundedReceiverStream::new(batches)).await;
        let inner = match opened {
            Ok(inner) => inner,
            Err(status) => return status.into_http(),
        };
        let mut side = Side::Away(Instant::now());
        side.set_open(Box::new(inner));
        let relay = Relay {
            streams,
            client: client_messages(body),
            client_side: ClientSide::Open,
            stopped: Box::pin(self.stopping.clone().cancelled_owned()),
            unanswered: Unanswered::new(in_process.unwrap_or_default()),
            side,
            to_shard: Some(to_shard),
            away_since: None,
            is_unknown: false,
            is_over: false,
        };
        respond(futures::stream::unfold(relay, |mut relay| async move {
            let next = relay.next().await?;
            Some((next, relay))
        }))
    }
}

/// The client's half of a stream.
enum ClientSide {
    /// More batches may come.
    Open,
    /// The client has sent everything, or something that cannot be read: the status that says so.
    Ended(Option<Status>),
    /// The server stops: what was passed on is answered.
    Stopped,
}

/// One relayed stream, with both of its sides.
struct Relay {
    streams: InnerStreams,
    client: Streaming<BatchEnvelope>,
    client_side: ClientSide,
    /// Completes when the server stops.
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    unanswered: Unanswered,
    side: Side<AnswerEnvelope>,
    /// Channel to the inner stream; `None` while there is none, and once everything of the client was sent.
    to_shard: Option<mpsc::UnboundedSender<BatchEnvelope>>,
    /// Time since which the shard has not been reached; `None` if it is.
    away_since: Option<Instant>,
    /// Whether some of the batches without an answer may have been enqueued by an owner that died.
    is_unknown: bool,
    /// Whether the last answer was given.
    is_over: bool,
}

impl Relay {
    /// Returns the next answer, or the status that ends the stream; `None` at the end.
    async fn next(&mut self) -> Option<Result<AnswerEnvelope, Status>> {
        while !self.is_over {
            let is_all_answered = self.unanswered.batches.is_empty();
            if (is_all_answered || self.is_cut_off())
                && let Some(end) = self.end_of_client()
            {
                self.is_over = true;
                return end.map(Err);
            }
            let is_open = matches!(self.client_side, ClientSide::Open);
            tokio::select! {
                biased;
                happened = self.side.next() => {
                    if let Some(answer) = self.note(happened) {
                        self.is_over = answer.is_err();
                        return Some(answer);
                    }
                }
                () = self.stopped.as_mut(), if is_open => self.end_client(ClientSide::Stopped),
                batch = self.client.message(), if is_open && self.unanswered.has_room() => match batch {
                    Ok(Some(batch)) => self.take(batch),
                    Ok(None) => self.end_client(ClientSide::Ended(None)),
                    Err(refusal) => self.end_client(ClientSide::Ended(Some(refusal))),
                }
            }
        }
        None
    }

    /// Whether the server stops while the shard is not reached: nothing is sent to its next owner.
    fn is_cut_off(&self) -> bool {
        let is_stopped = matches!(self.client_side, ClientSide::Stopped);
        is_stopped && !matches!(self.side, Side::Open(..))
    }

    /// Returns how the stream ends once everything is answered: `None` within if it ends well. `None` while the client may
    /// send more.
    fn end_of_client(&mut self) -> Option<Option<Status>> {
        match &mut self.client_side {
            ClientSide::Open => None,
            ClientSide::Ended(refusal) => Some(refusal.take()),
            ClientSide::Stopped if self.is_unknown => Some(Some(unknown())),
            ClientSide::Stopped => Some(Some(Problem::stopping().into())),
        }
    }

    /// Reads no more batches, and ends the inner stream behind those that were passed on.
    fn end_client(&mut self, side: ClientSide) {
        self.client_side = side;
        if matches!(self.side, Side::Open(..)) {
            self.to_shard = None;
        }
    }

    /// Keeps a batch of the client, and passes it on if there is an inner stream.
    fn take(&mut self, batch: BatchEnvelope) {
        // Before it is open, nothing is sent: if it cannot be opened, nothing has happened.
        if let (Some(to_shard), Side::Open(..)) = (&self.to_shard, &self.side) {
            // Without a receiver its end is heard of on the other side.
            let _ = to_shard.send(batch.clone());
        }
        self.unanswered.push(batch);
    }

    /// Notes what has happened on the shard's side. Returns an answer, or the status if it ends the client's stream.
    fn note(
        &mut self,
        happened: FromShard<AnswerEnvelope>,
    ) -> Option<Result<AnswerEnvelope, Status>> {
        match happened {
            FromShard::Message(answer) => {
                self.away_since = None;
                let answer = self.unanswered.answer(answer);
                self.is_unknown &= !self.unanswered.batches.is_empty();
                return Some(answer);
            }
            FromShard::Opened(inner) => {
                self.side.set_open(inner);
                self.streams.count_reopened();
                self.send_again();
            }
            FromShard::Again => {
                let (to_shard, batches) = mpsc::unbounded_channel();
                let batches = UnboundedReceiverStream::new(batches);
                self.side = Side::Opening(self.streams.open(batches));
                self.to_shard = Some(to_shard);
            }
            FromShard::Ended(status) => {
                if let Some(end) = self.end_with(status) {
                    return Some(Err(end));
                }
                self.to_shard = None;
                self.away_since.get_or_insert(Instant::now());
                self.side.set_away();
            }
        }
        None
    }

    /// Sends what is unanswered to the owner that the shard has now.
    fn send_again(&mut self) {
        let Some(to_shard) = &self.to_shard else {
            return;
        };
        for batch in &self.unanswered.batches {
            let _ = to_shard.send(batch.clone());
        }
        if !matches!(self.client_side, ClientSide::Open) {
            self.to_shard = None;
        }
    }

    /// Returns the status that ends the client's stream because of the end of an inner stream; `None` if the stream goes on
    /// at the next owner.
    fn end_with(&mut self, status: Status) -> Option<Status> {
        let is_of_move = self.side.is_broken()
            || matches!(status.code(), Code::Ok | Code::Unavailable | Code::Unknown);
        if !is_of_move {
            return Some(self.or_unknown(status));
        }
        // An owner that gives its shard up says so once it has answered all batches that it has taken. Without an open
        // stream nothing was sent.
        let has_answered = !self.side.is_broken() && status.code() == Code::Unavailable;
        let is_open = matches!(self.side, Side::Open(..));
        if is_open && !has_answered {
            self.is_unknown |= !self.unanswered.batches.is_empty();
            if !self.unanswered.may_be_repeated() {
                return Some(unknown());
            }
        }
        let away = self.away_since.map(|since| since.elapsed());
        let is_too_long = away.is_some_and(|away| away > AWAY_MAX);
        is_too_long.then(|| self.or_unknown(status))
    }

    /// Returns the status that ends the stream. No later failure hides that batches may have been enqueued.
    fn or_unknown(&self, status: Status) -> Status {
        if self.is_unknown { unknown() } else { status }
    }
}

/// Says that nobody knows what became of the batches without an answer.
fn unknown() -> Status {
    let words = "the node of the shard has died, or its connection was lost, before it answered all batches: they may be enqueued or not";
    Problem::new("outcome_unknown", words).into()
}

/// The batches of a stream that have no answer yet, in the order of the client.
struct Unanswered {
    batches: VecDeque<BatchEnvelope>,
    bytes: usize,
    /// Tells the transport these bytes.
    in_process: BytesInProcess,
}

impl Unanswered {
    fn new(in_process: BytesInProcess) -> Self {
        in_process.set(0);
        Self {
            batches: VecDeque::new(),
            bytes: 0,
            in_process,
        }
    }

    fn has_room(&self) -> bool {
        self.batches.len() < BATCHES_MAX && self.bytes < BATCHES_BYTES_MAX
    }

    fn push(&mut self, batch: BatchEnvelope) {
        self.bytes += batch.encoded_len();
        self.in_process.set(self.bytes);
        self.batches.push_back(batch);
    }

    /// Takes the answer to the oldest batch.
    fn answer(&mut self, answer: AnswerEnvelope) -> Result<AnswerEnvelope, Status> {
        match self.batches.pop_front() {
            Some(batch) if batch.number == answer.number => {
                self.bytes -= batch.encoded_len();
                self.in_process.set(self.bytes);
                Ok(answer)
            }
            _ => Err(Status::internal(
                "the shard has answered another batch than the oldest",
            )),
        }
    }

    /// Whether all of them have an idempotency key.
    fn may_be_repeated(&self) -> bool {
        self.batches.iter().all(BatchEnvelope::has_key)
    }
}

#[cfg(test)]
mod tests;
