//! Submissions, to this shard alone or to several through the router.

use ganger_engine::ShardedSubmission;
use ganger_router::{Busy, RouteError};
use ganger_shard::CallError;
use ganger_types::command::Enqueue;
use ganger_types::{Command, Graph, JobRef, Rejection, Reply};

use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;

/// The outcome of a submission.
pub(crate) struct SubmissionOutcome {
    /// Jobs in order, and whether each existed already.
    pub(crate) jobs: Vec<(JobRef, bool)>,
    /// Graph of the jobs; `None` if they form none.
    pub(crate) graph: Option<Graph>,
    /// Whether this is the answer to an earlier submission with the same idempotency key.
    pub(crate) repeat: bool,
}

/// Submits all jobs or none. `explain` adds the name of the job to a refusal that one job caused.
pub(crate) async fn submit(
    context: &RequestContext,
    spread: ShardedSubmission,
    graph: bool,
    explain: impl Fn(RouteError) -> Problem,
) -> Result<SubmissionOutcome, Problem> {
    let is_here = spread
        .only_shard()
        .is_none_or(|shard| shard == context.shard().id());
    if is_here && !spread.refers_elsewhere() && spread.counts().len() <= 1 {
        return submit_here(context, spread, graph).await?.map_err(explain);
    }
    let router = context.api.settings().router.as_ref();
    let router = router.ok_or_else(unexpected_reply)?;
    let submitted = router
        .submit(spread, graph, context.now())
        .await
        .map_err(explain)?;
    Ok(SubmissionOutcome {
        jobs: submitted.jobs,
        graph: submitted.graph,
        repeat: submitted.repeat,
    })
}

async fn submit_here(
    context: &RequestContext,
    spread: ShardedSubmission,
    graph: bool,
) -> Result<Result<SubmissionOutcome, RouteError>, Problem> {
    let here = context.shard().id();
    match enqueue(context, spread.into_one(graph)).await {
        Ok(Reply::Enqueued {
            jobs,
            graph,
            repeat,
        }) => {
            let jobs = jobs.into_iter().map(|job| {
                let (shard, id) = (here.clone(), job.id);
                (JobRef { shard, id }, job.existed)
            });
            let jobs = jobs.collect();
            Ok(Ok(SubmissionOutcome {
                jobs,
                graph,
                repeat,
            }))
        }
        Ok(_) => Err(unexpected_reply()),
        Err(error) => Ok(Err(error.into())),
    }
}

/// Enqueues a submission on this shard. Waits while another submission of the same jobs is being decided.
async fn enqueue(context: &RequestContext, submission: Enqueue) -> Result<Reply, CallError> {
    let router = context.api.settings().router.as_ref();
    if !router.is_some_and(ganger_router::Router::knows_others) {
        return context.call(Command::Enqueue(Box::new(submission))).await;
    }
    let mut busy = Busy::default();
    loop {
        let command = Command::Enqueue(Box::new(submission.clone()));
        match context.call(command).await {
            Err(CallError::Rejected(Rejection::IdBusy { .. })) if busy.pause().await => {}
            outcome => return outcome,
        }
    }
}
