//! A stream of submissions. Batches that arrive together become one request to the shard, and are answered together.

use std::pin::Pin;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, StreamExt as _};
use ganger_access::BytesInProcess;
use ganger_engine::ShardedSubmission;
use ganger_proto::v1;
use ganger_proto::v1::enqueue_answer::Outcome;
use ganger_shard::CallError;
use ganger_types::command::Enqueue;
use ganger_types::{Command, Rejection, Reply};
use prost::Message as _;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::{Status, Streaming};

use super::Streamed;
use crate::ServiceContext;
use crate::authorization;
use crate::decode;
use crate::encode;
use crate::problem::Problem;

/// Batches of one stream without an answer; beyond it nothing more is read.
const BATCHES_MAX: usize = 1_024;
/// Bytes of those batches together; a single larger batch still fits.
const BATCHES_BYTES_MAX: usize = 2 << 20;
/// Batches in one request to the shard.
const GROUP_BATCHES_MAX: usize = 256;

type Answers = Vec<Result<v1::EnqueueAnswer, Status>>;

impl ServiceContext {
    /// Takes batches as they come, many at a time, and answers in their order.
    ///
    /// Everything happens while the transport asks for answers: there is no task and no channel in between.
    pub(crate) fn submit_stream(
        &self,
        batches: Streaming<v1::EnqueueBatch>,
        in_process: BytesInProcess,
    ) -> Streamed<v1::EnqueueAnswer> {
        let stopping = self.options.stopping.clone();
        in_process.set(0);
        let stream = EnqueueStream {
            context: self.clone(),
            batches,
            stopped: Box::pin(stopping.cancelled_owned()),
            state: StreamState::Open,
            in_flight: FuturesOrdered::new(),
            batches_in_flight: 0,
            bytes_in_flight: 0,
            in_process,
        };
        let caller = authorization::current();
        let answers = futures::stream::unfold(stream, move |mut stream| {
            let next = async move {
                let answers = stream.next_answers().await?;
                Some((futures::stream::iter(answers), stream))
            };
            authorization::on_behalf(caller.clone(), next)
        });
        Box::pin(answers.flatten())
    }
}

/// Batches that are being submitted, and how much of the limits they take.
struct InFlight {
    answers: Answers,
    batches: usize,
    bytes: usize,
}

/// State of the client's half of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamState {
    /// More batches may come.
    Open,
    /// The client has sent everything.
    Ended,
    /// The server stops: what came is answered, and nothing more is read.
    Stopped,
}

/// State of one stream.
struct EnqueueStream {
    context: ServiceContext,
    batches: Streaming<v1::EnqueueBatch>,
    /// Completes when the server stops.
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    state: StreamState,
    in_flight: FuturesOrdered<BoxFuture<'static, InFlight>>,
    batches_in_flight: usize,
    bytes_in_flight: usize,
    /// Tells the transport the bytes in flight.
    in_process: BytesInProcess,
}

impl EnqueueStream {
    /// Returns the next answers; `None` at the end.
    async fn next_answers(&mut self) -> Option<Answers> {
        loop {
            if self.state != StreamState::Open && self.in_flight.is_empty() {
                let is_stopped = self.state == StreamState::Stopped;
                self.state = StreamState::Ended;
                return is_stopped.then(|| vec![Err(Problem::stopping().into())]);
            }
            tokio::select! {
                biased;
                Some(done) = self.in_flight.next() => {
                    self.batches_in_flight -= done.batches;
                    self.bytes_in_flight -= done.bytes;
                    self.in_process.set(self.bytes_in_flight);
                    return Some(done.answers);
                }
                () = self.stopped.as_mut(), if self.state == StreamState::Open => {
                    self.state = StreamState::Stopped;
                }
                first = self.batches.message(), if self.state == StreamState::Open && self.has_room() => {
                    match first {
                        Ok(Some(first)) => self.take_batches(first).await,
                        Ok(None) => self.state = StreamState::Ended,
                        Err(refusal) => self.end_with(refusal),
                    }
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        self.batches_in_flight < BATCHES_MAX && self.bytes_in_flight < BATCHES_BYTES_MAX
    }

    /// Reads nothing more, because what came cannot be read. The last answer says why, after those of the batches before.
    fn end_with(&mut self, refusal: Status) {
        self.state = StreamState::Ended;
        let refusal = InFlight {
            answers: vec![Err(refusal)],
            batches: 0,
            bytes: 0,
        };
        self.in_flight
            .push_back(std::future::ready(refusal).boxed());
    }

    /// Submits a batch and those that have arrived after it.
    async fn take_batches(&mut self, first: v1::EnqueueBatch) {
        let mut group = Group::default();
        let (mut next, mut refused) = (Some(first), None);
        while let Some(batch) = next.take() {
            let bytes = batch.encoded_len();
            self.batches_in_flight += 1;
            self.bytes_in_flight += bytes;
            self.in_process.set(self.bytes_in_flight);
            if let Some(batch) = group.add(&self.context, batch, bytes) {
                self.submit(std::mem::take(&mut group)).await;
                self.push(batch.submit(self.context.clone(), bytes)).await;
            }
            if group.entries.len() < GROUP_BATCHES_MAX && self.has_room() {
                match self.batches.message().now_or_never() {
                    Some(Ok(Some(batch))) => next = Some(batch),
                    Some(Ok(None)) => self.state = StreamState::Ended,
                    Some(Err(refusal)) => refused = Some(refusal),
                    None => {}
                }
            }
        }
        self.submit(group).await;
        if let Some(refusal) = refused {
            self.end_with(refusal);
        }
    }

    async fn submit(&mut self, group: Group) {
        if !group.entries.is_empty() {
            self.push(group.submit(self.context.clone())).await;
        }
    }

    /// Polls a submission once, so that batches reach the shard in their order, and keeps it.
    async fn push(&mut self, submission: impl Future<Output = InFlight> + Send + 'static) {
        let mut submission = submission.boxed();
        let begun = match futures::poll!(submission.as_mut()) {
            std::task::Poll::Ready(done) => std::future::ready(done).boxed(),
            std::task::Poll::Pending => submission,
        };
        self.in_flight.push_back(begun);
    }
}

/// Consecutive batches that concern only this shard.
#[derive(Default)]
struct Group {
    commands: Vec<Command>,
    entries: Vec<Entry>,
    bytes: usize,
}

/// A batch of a group.
struct Entry {
    number: u64,
    /// What is needed for the answer, or why the batch is refused without asking the shard.
    outcome: Result<Accepted, Problem>,
}

/// A batch that became a command.
struct Accepted {
    /// Names of the jobs in the batch, repeated in the answer.
    names: Vec<String>,
    /// The submission, if another shard may be deciding about one of its ids: the command is then tried again.
    retried: Option<Enqueue>,
}

/// A batch that concerns other shards.
struct ShardedBatch {
    number: u64,
    submission: ShardedSubmission,
    graph: bool,
    names: Vec<String>,
}

impl ShardedBatch {
    async fn submit(self, context: ServiceContext, bytes: usize) -> InFlight {
        let outcome = context.enqueue_named(self.submission, self.graph, self.names);
        InFlight {
            answers: vec![Ok(answer(self.number, outcome.await))],
            batches: 1,
            bytes,
        }
    }
}

impl Group {
    /// Adds a batch, or returns it if it concerns other shards.
    fn add(
        &mut self,
        context: &ServiceContext,
        batch: v1::EnqueueBatch,
        bytes: usize,
    ) -> Option<ShardedBatch> {
        let number = batch.number;
        let outcome = match batch.request {
            None => Err(Problem::missing("request", "send the jobs")),
            Some(request) => {
                let graph = request.graph;
                match decode::enqueue(context.shards(), request) {
                    Err(problem) => Err(problem),
                    Ok((submission, names)) if !context.is_here(&submission) => {
                        return Some(ShardedBatch {
                            number,
                            submission,
                            graph,
                            names,
                        });
                    }
                    Ok((submission, names)) => {
                        Ok(self.accept(context, submission.into_one(graph), names))
                    }
                }
            }
        };
        self.entries.push(Entry { number, outcome });
        self.bytes += bytes;
        None
    }

    fn accept(
        &mut self,
        context: &ServiceContext,
        submission: Enqueue,
        names: Vec<String>,
    ) -> Accepted {
        let has_ids = submission.jobs.iter().any(|job| job.id.is_some());
        let retried = (has_ids && context.knows_others()).then(|| submission.clone());
        self.commands.push(Command::Enqueue(Box::new(submission)));
        Accepted { names, retried }
    }

    async fn submit(self, context: ServiceContext) -> InFlight {
        let (batches, bytes) = (self.entries.len(), self.bytes);
        let mut replies = match context.call_all(self.commands).await {
            Ok(replies) => Ok(replies.into_iter()),
            Err(error) => Err(Problem::from(error)),
        };
        let mut answers = Vec::with_capacity(batches);
        for Entry { number, outcome } in self.entries {
            let outcome = match (outcome, &mut replies) {
                (Err(problem), _) => Err(problem),
                (Ok(_), Err(problem)) => Err(problem.clone()),
                (Ok(accepted), Ok(replies)) => match replies.next() {
                    Some(reply) => context.finish(accepted, reply).await,
                    None => Err(Problem::unexpected()),
                },
            };
            answers.push(Ok(answer(number, outcome)));
        }
        InFlight {
            answers,
            batches,
            bytes,
        }
    }
}

impl ServiceContext {
    async fn call_all(
        &self,
        commands: Vec<Command>,
    ) -> Result<Vec<Result<Reply, CallError>>, CallError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.handle.call_all(commands).await
    }

    /// Makes the reply to a batch from what the shard answered.
    async fn finish(
        &self,
        accepted: Accepted,
        reply: Result<Reply, CallError>,
    ) -> Result<v1::EnqueueReply, Problem> {
        let submitted = match (reply, accepted.retried) {
            (Err(CallError::Rejected(Rejection::IdBusy { .. })), Some(submission)) => {
                self.submit_until_decided(submission).await?
            }
            (reply, _) => self.submitted(reply?)?,
        };
        Ok(encode::enqueue_reply(&submitted, accepted.names))
    }
}

fn answer(number: u64, outcome: Result<v1::EnqueueReply, Problem>) -> v1::EnqueueAnswer {
    v1::EnqueueAnswer {
        number,
        outcome: Some(match outcome {
            Ok(reply) => Outcome::Accepted(reply),
            Err(problem) => Outcome::Refused(problem.into()),
        }),
    }
}
