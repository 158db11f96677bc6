//! Submissions: one message, or a graph in parts.

use ganger_engine::ShardedSubmission;
use ganger_proto::v1;
use ganger_router::{Busy, Submitted};
use ganger_shard::CallError;
use ganger_types::command::{Enqueue, NewInput, NewJob};
use ganger_types::reply::Enqueued;
use ganger_types::{Command, IdempotencyKey, JobRef, Namespace, Rejection, Reply, limits};
use tonic::{Status, Streaming};

use super::{Streamed, reply_as};
use crate::ServiceContext;
use crate::decode::{self, At, Shards};
use crate::encode;
use crate::problem::Problem;

/// Ids in one message of the answer to a graph.
const ACCEPTED_JOBS_MAX: usize = 10_000;

impl ServiceContext {
    /// Enqueues a submission that came whole.
    pub(crate) async fn submit(
        &self,
        request: v1::EnqueueRequest,
    ) -> Result<v1::EnqueueReply, Problem> {
        let graph = request.graph;
        let (submission, names) = decode::enqueue(self.shards(), request)?;
        self.enqueue_named(submission, graph, names).await
    }

    pub(super) fn shards(&self) -> Shards<'_> {
        Shards {
            here: self.handle.id(),
            router: self.options.router.as_ref(),
        }
    }

    /// Has the shards concerned take a submission, and names its jobs in the answer as the client did.
    pub(super) async fn enqueue_named(
        &self,
        submission: ShardedSubmission,
        graph: bool,
        names: Vec<String>,
    ) -> Result<v1::EnqueueReply, Problem> {
        let submitted = if self.is_here(&submission) {
            self.submit_here(submission, graph).await?
        } else {
            let router = self.options.router.as_ref();
            let router = router.ok_or_else(Problem::unexpected)?;
            router.submit(submission, graph, None).await?
        };
        Ok(encode::enqueue_reply(&submitted, names))
    }

    /// Whether a submission concerns only this shard.
    pub(super) fn is_here(&self, submission: &ShardedSubmission) -> bool {
        let is_here = submission
            .only_shard()
            .is_none_or(|shard| shard == self.handle.id());
        is_here && !submission.refers_elsewhere() && submission.counts().len() <= 1
    }

    /// Whether there are other shards.
    pub(super) fn knows_others(&self) -> bool {
        let router = self.options.router.as_ref();
        router.is_some_and(ganger_router::Router::knows_others)
    }

    async fn submit_here(
        &self,
        submission: ShardedSubmission,
        graph: bool,
    ) -> Result<Submitted, Problem> {
        let submission = submission.into_one(graph);
        if self.knows_others() {
            return self.submit_until_decided(submission).await;
        }
        let reply = self.call(Command::Enqueue(Box::new(submission))).await?;
        self.submitted(reply)
    }

    /// Has this shard take a submission. While another submission of the same ids is being decided, it waits for that.
    pub(super) async fn submit_until_decided(
        &self,
        submission: Enqueue,
    ) -> Result<Submitted, Problem> {
        let mut busy = Busy::default();
        loop {
            let command = Command::Enqueue(Box::new(submission.clone()));
            match self.handle.call(command).await {
                Err(CallError::Rejected(Rejection::IdBusy { .. })) if busy.pause().await => {}
                outcome => return self.submitted(outcome?),
            }
        }
    }

    /// The submission that this shard took.
    pub(super) fn submitted(&self, reply: Reply) -> Result<Submitted, Problem> {
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

    /// Collects a graph, submits it whole, and answers in parts.
    pub(crate) async fn submit_graph_parts(
        &self,
        parts: Streaming<v1::GraphPart>,
    ) -> Result<Streamed<v1::GraphAccepted>, Status> {
        let (submission, names) = collect(self.shards(), parts).await?;
        let reply = self.enqueue_named(submission, true, names).await?;
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
    let submission = ShardedSubmission {
        namespace,
        idempotency_key,
        jobs,
    };
    Ok((submission, names))
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
