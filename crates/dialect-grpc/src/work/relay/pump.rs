//! The task of a relayed stream: passes messages in both directions, and opens the inner stream again.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use ganger_access::BytesInProcess;
use ganger_proto::v1;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use super::WAITING_MAX;
use super::envelope::{Delivered, ServerEnvelope, WorkerEnvelope};
use super::state::StreamState;
use crate::inner_stream::{AWAY_MAX, FromShard, InnerStreams, Side};
use crate::problem::Problem;
use crate::work::session::drain_requested;

/// Longest time for which jobs are given back that did not reach their worker.
const GIVE_BACK_MAX: Duration = Duration::from_secs(5);

/// Message to the worker, or the status that ends the stream.
type ToWorkerMessage = Result<ServerEnvelope, Status>;

/// The task that relays one stream, with both of its sides.
pub(super) struct Pump {
    streams: InnerStreams,
    state: StreamState,
    worker: Streaming<WorkerEnvelope>,
    to_worker: mpsc::Sender<ToWorkerMessage>,
    /// Message that waits for room in `to_worker`.
    out: Option<ServerEnvelope>,
    /// Channel to the inner stream; `None` while there is none.
    to_shard: Option<mpsc::Sender<WorkerEnvelope>>,
    /// Messages that wait for room in `to_shard`.
    queue: VecDeque<WorkerEnvelope>,
    side: Side<ServerEnvelope>,
    /// Time since which the shard has not been reached; `None` if it is.
    away_since: Option<Instant>,
    /// Hears of the first inner stream, or why there is none; `None` once it has.
    opened: Option<oneshot::Sender<Result<(), Status>>>,
    /// Whether the worker was told that this server is about to stop.
    is_draining: bool,
    /// Whether the worker has ended its side.
    is_half_closed: bool,
    /// Tells the transport the bytes that are kept.
    in_process: BytesInProcess,
}

impl Pump {
    pub(super) fn new(
        streams: InnerStreams,
        worker: Streaming<WorkerEnvelope>,
        to_worker: mpsc::Sender<ToWorkerMessage>,
        in_process: BytesInProcess,
    ) -> Self {
        let (to_shard, messages) = mpsc::channel(WAITING_MAX);
        Self {
            side: Side::Opening(streams.open(ReceiverStream::new(messages))),
            streams,
            state: StreamState::default(),
            worker,
            to_worker,
            out: None,
            to_shard: Some(to_shard),
            queue: VecDeque::new(),
            away_since: None,
            opened: None,
            is_draining: false,
            is_half_closed: false,
            in_process,
        }
    }

    /// Relays the stream until it ends. `opened` hears of the first inner stream, or why there is none.
    pub(super) async fn run(
        mut self,
        opened: oneshot::Sender<Result<(), Status>>,
        mut returned: mpsc::UnboundedReceiver<ServerEnvelope>,
        mut draining: watch::Receiver<bool>,
        stopping: CancellationToken,
    ) {
        self.opened = Some(opened);
        let to_worker = self.to_worker.clone();
        let mut gone = pin!(to_worker.closed());
        let mut stopped = pin!(stopping.cancelled());
        let end = loop {
            let may_read = self.queue.is_empty() && !self.is_half_closed && self.state.has_room();
            tokio::select! {
                room = to_worker.reserve(), if self.out.is_some() => {
                    // Without a receiver it is given back.
                    if let Ok(room) = room && let Some(message) = self.out.take() {
                        room.send(Ok(message));
                    }
                }
                sent = send_first(self.to_shard.as_ref(), &mut self.queue), if !self.queue.is_empty() => {
                    if !sent {
                        // Its end is heard of on the other side.
                        self.to_shard = None;
                        self.queue.clear();
                    }
                }
                happened = self.side.next(), if self.out.is_none() => {
                    if let Some(end) = self.note(happened) {
                        break Some(end);
                    }
                }
                message = self.worker.message(), if may_read => match message {
                    Ok(Some(message)) => self.receive(message),
                    Ok(None) if self.to_shard.is_none() => break None,
                    Ok(None) => {
                        self.is_half_closed = true;
                        self.to_shard = None;
                    }
                    Err(status) => break Some(status),
                },
                () = gone.as_mut() => break None,
                () = drain_requested(&mut draining), if !self.is_draining && self.out.is_none() => {
                    self.is_draining = true;
                    self.out = Some(ServerEnvelope { drain: true, ..ServerEnvelope::default() });
                }
                () = stopped.as_mut() => break Some(Problem::stopping().into()),
            }
        };
        let end = end.unwrap_or_else(|| Status::ok(""));
        if let Some(opened) = self.opened.take() {
            drop(opened.send(Err(end)));
        } else if end.code() != Code::Ok {
            self.say_last(end).await;
        }
        self.give_back(&mut returned).await;
    }

    /// Notes what has happened on the shard's side. Returns the status if it ends the worker's stream.
    fn note(&mut self, happened: FromShard<ServerEnvelope>) -> Option<Status> {
        match happened {
            FromShard::Opened(inner) => {
                self.side.set_open(inner);
                match self.opened.take() {
                    Some(opened) => drop(opened.send(Ok(()))),
                    None => self.streams.count_reopened(),
                }
            }
            FromShard::Message(message) => self.pass_out(message),
            FromShard::Again => self.open_again(),
            FromShard::Ended(status) if self.is_final(&status) => return Some(status),
            FromShard::Ended(_) => self.go_away(),
        }
        None
    }

    /// Takes a message of the worker, and passes it on, if there is an inner stream. If not, the next one begins with it.
    fn receive(&mut self, message: WorkerEnvelope) {
        self.state.receive(&message);
        if self.to_shard.is_some() {
            self.queue.push_back(self.state.pass_in(message));
        }
        self.in_process.set(self.state.unanswered_bytes());
    }

    fn pass_out(&mut self, message: ServerEnvelope) {
        self.away_since = None;
        self.out = Some(self.state.pass_out(message));
        self.in_process.set(self.state.unanswered_bytes());
    }

    /// Whether the end of an inner stream ends the worker's stream.
    fn is_final(&self, status: &Status) -> bool {
        // A node that stops ends streams without an error once their workers hold nothing. Without any status, its
        // connection has ended.
        let is_of_move = self.side.is_broken()
            || matches!(status.code(), Code::Ok | Code::Unavailable | Code::Unknown);
        let is_too_long = self
            .away_since
            .is_some_and(|since| since.elapsed() > AWAY_MAX);
        let is_over = self.opened.is_some() || self.is_draining || self.is_half_closed;
        is_over || !is_of_move || is_too_long
    }

    /// Waits before an inner stream is opened again.
    fn go_away(&mut self) {
        self.to_shard = None;
        self.queue.clear();
        self.away_since.get_or_insert(Instant::now());
        self.side.set_away();
    }

    fn open_again(&mut self) {
        let (to_shard, messages) = mpsc::channel(WAITING_MAX);
        self.side = Side::Opening(self.streams.open(ReceiverStream::new(messages)));
        self.to_shard = Some(to_shard);
        self.queue = self.state.resume().into();
    }

    /// Sends what waits for the worker, and the status that ends its stream.
    async fn say_last(&mut self, status: Status) {
        let send = async {
            if let Some(message) = self.out.take()
                && let Err(unsent) = self.to_worker.send(Ok(message)).await
            {
                self.out = unsent.0.ok();
                return;
            }
            // The worker may be gone.
            drop(self.to_worker.send(Err(status)).await);
        };
        timeout(crate::work::SLOW_MAX, send).await.ok();
    }

    /// Gives jobs back that did not reach the worker: uncounted, at their old places.
    async fn give_back(mut self, returned: &mut mpsc::UnboundedReceiver<ServerEnvelope>) {
        let (Some(to_shard), Side::Open(mut inner, _)) = (self.to_shard.take(), self.side) else {
            return;
        };
        drop(self.to_worker);
        let mut unsent: Vec<_> = self.out.into_iter().collect();
        while let Ok(message) = returned.try_recv() {
            unsent.push(message);
        }
        let deliveries = unsent.iter().flat_map(|message| &message.deliveries);
        let reports: Vec<_> = deliveries.filter_map(release).collect();
        if reports.is_empty() {
            return;
        }
        let give_back = async {
            let message = WorkerEnvelope {
                credits_dropped: true,
                reports,
                ..WorkerEnvelope::default()
            };
            let mut left = message.reports.len();
            if to_shard.send(message).await.is_err() {
                return;
            }
            while left > 0
                && let Ok(Some(message)) = inner.messages.message().await
            {
                left = left.saturating_sub(message.answers.len());
            }
        };
        timeout(GIVE_BACK_MAX, give_back).await.ok();
    }
}

/// Sends the first message of a queue once there is room; forever, if there is nowhere to send it. Returns false if
/// nobody receives.
async fn send_first(
    to: Option<&mpsc::Sender<WorkerEnvelope>>,
    queue: &mut VecDeque<WorkerEnvelope>,
) -> bool {
    let Some(to) = to else {
        return pending().await;
    };
    let Ok(room) = to.reserve().await else {
        return false;
    };
    if let Some(message) = queue.pop_front() {
        room.send(message);
    }
    true
}

/// Returns the encoded report that gives a delivered job back.
fn release(delivery: &bytes::Bytes) -> Option<bytes::Bytes> {
    let Delivered { job, token } = Delivered::read(delivery)?;
    let release = v1::Releasing {
        held: Some(v1::Held { job, token }),
        delay_ms: 0,
        counted: false,
        keep_place: true,
        reason: "the worker's stream ended before the job was sent".to_owned(),
    };
    let report = v1::Report {
        number: 0,
        what: Some(v1::report::What::Release(release)),
    };
    Some(report.encode_to_vec().into())
}

/// The messages that the transport sends to the worker.
pub(super) struct ToWorker {
    messages: mpsc::Receiver<ToWorkerMessage>,
    /// Gets the messages that the transport did not take.
    unsent: mpsc::UnboundedSender<ServerEnvelope>,
}

impl ToWorker {
    pub(super) fn new(
        messages: mpsc::Receiver<ToWorkerMessage>,
        unsent: mpsc::UnboundedSender<ServerEnvelope>,
    ) -> Self {
        Self { messages, unsent }
    }
}

impl Stream for ToWorker {
    type Item = ToWorkerMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ToWorkerMessage>> {
        self.messages.poll_recv(cx)
    }
}

impl Drop for ToWorker {
    fn drop(&mut self) {
        self.messages.close();
        while let Ok(message) = self.messages.try_recv() {
            if let Ok(message) = message {
                // The task may have ended.
                drop(self.unsent.send(message));
            }
        }
    }
}
