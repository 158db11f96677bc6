//! Submissions: one message, a stream of batches, a graph in parts.

use futures::FutureExt as _;
use futures::stream::{FuturesOrdered, StreamExt};
use ganger_engine::ShardedSubmission;
use ganger_proto::v1;
use ganger_router::{Busy, Submitted};
use ganger_shard::CallError;
use ganger_types::command::{NewInput, NewJob};
use ganger_types::reply::Enqueued;
use ganger_types::{Command, IdempotencyKey, JobRef, Namespace, Rejection, Reply, limits};
use prost::Message as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Streamed, reply_as};
use crate::ServiceContext;
use crate::authorization;
use crate::decode::{self, At, Shards};
use crate::encode;
use crate::problem::Problem;

/// Batches of one stream in the shard at the same time.
const BATCHES_MAX: usize = 16;
/// Bytes of those batches together, beyond which no further one is read; a single larger batch still fits.
const BATCHES_BYTES_MAX: usize = 2 << 20;
/// Ids in one message of the answer to a graph.
const ACCEPTED_JOBS_MAX: usize = 10_000;

impl ServiceContext {
    /// Enqueues a submission that came whole.
    pub(crate) async fn submit(
        &self,
        request: v1::EnqueueRequest,
    ) -> Result<v1::EnqueueReply, Problem> {
        let graph = request.graph;
        let (spread, names) = decode::enqueue(self.shards(), request)?;
        self.enqueue_named(spread, graph, names).await
    }

    fn shards(&self) -> Shards<'_> {
        Shards {
            here: self.handle.id(),
            router: self.options.router.as_ref(),
        }
    }

    async fn enqueue_named(
        &self,
        spread: ShardedSubmission,
        graph: bool,
        names: Vec<String>,
    ) -> Result<v1::EnqueueReply, Problem> {
        let submitted = if self.is_here(&spread) {
            self.submit_here(spread, graph).await?
        } else {
            let router = self.options.router.as_ref();
            let router = router.ok_or_else(Problem::unexpected)?;
            router.submit(spread, graph, None).await?
        };
        let jobs = submitted.jobs.iter().zip(names);
        let jobs = jobs
            .map(|((job, existed), name)| encode::enqueued(&job.shard, &job.id, *existed, name));
        let graph = submitted.graph;
        Ok(v1::EnqueueReply {
            jobs: jobs.collect(),
            graph: encode::text_or_empty(graph.as_ref()),
            repeat: submitted.repeat,
        })
    }

    /// Whether this shard alone has to do with it.
    fn is_here(&self, spread: &ShardedSubmission) -> bool {
        let is_here = spread
            .only_shard()
            .is_none_or(|shard| shard == self.handle.id());
        is_here && !spread.refers_elsewhere() && spread.counts().len() <= 1
    }

    /// Has this shard take a submission. While another one of the same jobs is being decided, it waits for that.
    async fn submit_here(
        &self,
        spread: ShardedSubmission,
        graph: bool,
    ) -> Result<Submitted, Problem> {
        let submission = spread.into_one(graph);
        let router = self.options.router.as_ref();
        let reply = if router.is_some_and(ganger_router::Router::knows_others) {
            let mut busy = Busy::default();
            loop {
                let command = Command::Enqueue(Box::new(submission.clone()));
                match self.handle.call(command).await {
                    Err(CallError::Rejected(Rejection::IdBusy { .. })) if busy.pause().await => {}
                    outcome => break outcome?,
                }
            }
        } else {
            self.call(Command::Enqueue(Box::new(submission))).await?
        };
        let (jobs, graph, repeat) =
            reply_as!(reply, Reply::Enqueued { jobs, graph, repeat } => (jobs, graph, repeat))?;
        let job = |job: Enqueued| {
            let (shard, id) = (self.handle.id().clone(), job.id);
            (JobRef { shard, id }, job.existed)
        };
        Ok(Submitted {
            jobs: jobs.into_iter().map(job).collect(),
            graph,
            repeat,
        })
    }

    /// Takes batches as they come, several at a time, and answers in their order.
    pub(crate) fn submit_stream(
        &self,
        mut batches: Streaming<v1::EnqueueBatch>,
    ) -> Streamed<v1::EnqueueAnswer> {
        let face = self.clone();
        let (answers, receiver) = tokio::sync::mpsc::channel(BATCHES_MAX);
        tokio::spawn(authorization::carried(async move {
            let mut in_flight = FuturesOrdered::new();
            let stopping = face.options.stopping.clone();
            let mut is_open = true;
            let mut bytes_in_flight = 0;
            let mut is_stopped = false;
            while is_open || !in_flight.is_empty() {
                tokio::select! {
                    batch = batches.message(), if is_open && in_flight.len() < BATCHES_MAX && bytes_in_flight < BATCHES_BYTES_MAX => match batch {
                        // Polled once here, so that batches reach the shard in their order.
                        Ok(Some(batch)) => {
                            let bytes = batch.encoded_len();
                            bytes_in_flight += bytes;
                            let answer = face.clone().answer_batch(batch);
                            let answer = answer.map(move |answer| (answer, bytes));
                            in_flight.push_back(begun(answer).await);
                        }
                        Ok(None) | Err(_) => is_open = false,
                    },
                    Some((answer, bytes)) = in_flight.next() => {
                        bytes_in_flight -= bytes;
                        if answers.send(Ok(answer)).await.is_err() {
                            return;
                        }
                    }
                    // What came is answered, and nothing more is read.
                    () = stopping.cancelled(), if is_open => {
                        is_open = false;
                        is_stopped = true;
                    }
                }
            }
            if is_stopped {
                // The reader may have gone.
                answers.send(Err(Problem::stopping().into())).await.ok();
            }
        }));
        Box::pin(ReceiverStream::new(receiver))
    }

    async fn answer_batch(self, batch: v1::EnqueueBatch) -> v1::EnqueueAnswer {
        use v1::enqueue_answer::Outcome;
        let outcome = match batch.request {
            Some(request) => self.submit(request).await,
            None => Err(Problem::missing("request", "send the jobs")),
        };
        v1::EnqueueAnswer {
            number: batch.number,
            outcome: Some(match outcome {
                Ok(reply) => Outcome::Accepted(reply),
                Err(problem) => Outcome::Refused(problem.into()),
            }),
        }
    }

    /// Collects a graph, submits it whole, and answers in parts.
    pub(crate) async fn submit_graph_parts(
        &self,
        parts: Streaming<v1::GraphPart>,
    ) -> Result<Streamed<v1::GraphAccepted>, Status> {
        let (spread, names) = collect(self.shards(), parts).await?;
        let reply = self.enqueue_named(spread, true, names).await?;
        let (graph, repeat) = (reply.graph, reply.repeat);
        let mut jobs = reply.jobs.into_iter();
        let parts = std::iter::from_fn(move || {
            let jobs: Vec<_> = jobs.by_ref().take(ACCEPTED_JOBS_MAX).collect();
            (!jobs.is_empty()).then(|| {
                Ok(v1::GraphAccepted {
                    jobs,
                    graph: graph.clone(),
                    repeat,
                })
            })
        });
        Ok(Box::pin(futures::stream::iter(parts)))
    }
}

/// A future that has been polled once already.
async fn begun<F: Future + Send + 'static>(
    future: F,
) -> futures::future::BoxFuture<'static, F::Output>
where
    F::Output: Send,
{
    let mut future = Box::pin(future);
    match futures::poll!(future.as_mut()) {
        std::task::Poll::Ready(output) => Box::pin(std::future::ready(output)),
        std::task::Poll::Pending => future,
    }
}

/// A graph from its parts; memory is bounded by the limits on graphs.
async fn collect(
    shards: Shards<'_>,
    mut parts: Streaming<v1::GraphPart>,
) -> Result<(ShardedSubmission, Vec<String>), Status> {
    let mut first: Option<(Namespace, Option<IdempotencyKey>)> = None;
    let mut wire = Vec::new();
    let mut bytes = 0;
    while let Some(part) = parts.message().await? {
        if first.is_none() {
            let idempotency_key = decode::unless_empty(
                At::top("idempotency_key"),
                &part.idempotency_key,
                IdempotencyKey::new,
            )?;
            first = Some((decode::namespace(&part.namespace)?, idempotency_key));
        }
        decode::at_most(
            At::top("jobs"),
            wire.len() + part.jobs.len(),
            limits::GRAPH_JOBS_MAX,
        )?;
        bytes += part
            .jobs
            .iter()
            .map(prost::Message::encoded_len)
            .sum::<usize>();
        decode::at_most(
            At::top("bytes of the graph"),
            bytes,
            limits::GRAPH_BYTES_MAX,
        )?;
        wire.extend(part.jobs);
    }
    let (namespace, idempotency_key) = first.unwrap_or_default();
    let (mut jobs, names) = decode::members(shards, wire)?;
    for (_, job) in &mut jobs {
        detach(job);
    }
    let spread = ShardedSubmission {
        namespace,
        idempotency_key,
        jobs,
    };
    Ok((spread, names))
}

/// Small values share the buffer of the whole message they came in; a job that waits for long must
/// not keep all of that alive.
fn detach(job: &mut NewJob) {
    const SMALL: usize = 4 << 10;
    let copy = |bytes: &mut bytes::Bytes| {
        if bytes.len() <= SMALL {
            *bytes = bytes::Bytes::copy_from_slice(bytes);
        }
    };
    copy(&mut job.payload);
    for input in &mut job.inputs {
        if let NewInput::Value(value) = input {
            copy(value);
        }
    }
}
