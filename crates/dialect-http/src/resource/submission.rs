//! A submission on its way: to this shard alone, or to several through the router.

use ganger_engine::Spread;
use ganger_shard::CallError;
use ganger_types::command::Enqueue;
use ganger_types::{Command, Graph, JobRef, Reply};

use crate::ask::Ask;
use crate::problem::Problem;
use crate::refusal::unexpected_reply;

/// What became of a submission.
pub(crate) struct Submitted {
    /// The jobs in order, and whether each was there already.
    pub(crate) jobs: Vec<(JobRef, bool)>,
    /// The name of the whole.
    pub(crate) graph: Option<Graph>,
    /// Whether this is the answer of an earlier submission under the same key.
    pub(crate) repeat: bool,
}

/// Submits, all or none. `explain` says more of a refusal that is due to one of the jobs.
pub(crate) async fn submit(
    ask: &Ask,
    spread: Spread,
    graph: bool,
    explain: impl Fn(CallError) -> Problem,
) -> Result<Submitted, Problem> {
    if spread.is_at(ask.shard().id()) {
        return submit_here(ask, spread, graph).await?.map_err(explain);
    }
    // What would be wrong with it on one shard too is said in the places of the submission.
    spread
        .check()
        .map_err(|rejection| explain(CallError::Rejected(rejection)))?;
    let router = ask.api.settings().router.as_ref();
    let submitted = router.ok_or_else(unexpected_reply)?.submit(spread).await?;
    Ok(Submitted {
        jobs: submitted.jobs.into_iter().map(|job| (job, false)).collect(),
        graph: Some(submitted.graph),
        repeat: submitted.repeat,
    })
}

async fn submit_here(
    ask: &Ask,
    spread: Spread,
    graph: bool,
) -> Result<Result<Submitted, CallError>, Problem> {
    let command = Enqueue {
        namespace: spread.namespace,
        jobs: spread.jobs.into_iter().map(|(_, job)| job).collect(),
        claim: spread.claim,
        graph,
    };
    let here = ask.shard().id();
    match ask.call(Command::Enqueue(Box::new(command))).await {
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
            Ok(Ok(Submitted {
                jobs,
                graph,
                repeat,
            }))
        }
        Ok(_) => Err(unexpected_reply()),
        Err(error) => Ok(Err(error)),
    }
}
