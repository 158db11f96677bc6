//! Brings a submission to several shards: all of it, or nothing (`rel G8`).

use std::time::Duration;

use futures::future::try_join_all;
use ganger_engine::{Numbers, Parts, Spread};
use ganger_types::command::Decide;
use ganger_types::{Graph, JobRef, PartRecord, Rejection, ShardId};
use tokio::time::Instant;

use crate::reach::Reach;
use crate::{RouteError, Router};

/// How often a submission is begun anew because a shard lost its reservation by a restart.
const ATTEMPTS_MAX: u32 = 3;
/// How long a repeat waits for the first submission under its key to be decided.
const BUSY_FOR: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// What became of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The jobs, in the order of the submission.
    pub jobs: Vec<JobRef>,
    /// The name of the whole, the same on all its shards.
    pub graph: Graph,
    /// Whether this is the answer of an earlier submission under the same key.
    pub repeat: bool,
}

impl Router {
    /// Submits jobs to any shards; the answer comes when every part is durable and the decision is.
    ///
    /// # Errors
    /// If it is refused, or a shard cannot be reached: then nothing of it stays, though a shard that could
    /// not be told keeps its part, which does not run, until it hears of the decision.
    pub async fn submit(&self, spread: Spread) -> Result<Submitted, RouteError> {
        spread.check()?;
        for shard in spread.counts().keys() {
            self.reach(shard)?;
        }
        let began = Instant::now();
        let mut attempt = 1;
        loop {
            if let Some(earlier) = self.earlier(&spread).await? {
                return Ok(earlier);
            }
            self.check_outside(&spread).await?;
            match self.submit_once(spread.clone()).await {
                Err(error) if error.is("not_reserved") && attempt < ATTEMPTS_MAX => attempt += 1,
                Err(error) if error.is("idempotency_busy") && began.elapsed() < BUSY_FOR => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// The answer to an earlier submission under the same key.
    async fn earlier(&self, spread: &Spread) -> Result<Option<Submitted>, RouteError> {
        let (Some(key), Some(decider)) = (&spread.claim, spread.decider()) else {
            return Ok(None);
        };
        let found = self
            .reach(decider)?
            .find_claim(&spread.namespace, key)
            .await?;
        let Some(PartRecord {
            graph,
            claim: Some(claim),
            is_committed,
            ..
        }) = found
        else {
            return Ok(None);
        };
        if claim.fingerprint != spread.fingerprint() {
            return Err(Rejection::ClaimConflict.into());
        }
        if !is_committed {
            // Its own submitter is at work, or has gone; preparing says so.
            return Ok(None);
        }
        let numbers: Numbers = claim
            .numbers
            .into_iter()
            .map(|(shard, first, tag)| (shard, (first, tag)))
            .collect();
        Ok(Some(Submitted {
            jobs: spread.ids(&numbers),
            graph,
            repeat: true,
        }))
    }

    /// Refuses references to jobs that do not exist.
    async fn check_outside(&self, spread: &Spread) -> Result<(), RouteError> {
        let mut by_shard = std::collections::BTreeMap::<ShardId, Vec<_>>::new();
        for job in spread.outside() {
            by_shard.entry(job.shard).or_default().push(job.id);
        }
        for (shard, ids) in by_shard {
            let missing = self
                .reach(&shard)?
                .find_missing(&spread.namespace, &ids)
                .await?;
            if let Some(id) = missing.into_iter().next() {
                let job = JobRef { shard, id };
                return Err(RouteError::NoSuchUpstream { job });
            }
        }
        Ok(())
    }

    async fn submit_once(&self, spread: Spread) -> Result<Submitted, RouteError> {
        let namespace = spread.namespace.clone();
        let counts = spread.counts();
        let reserved = counts.iter().map(|(shard, jobs)| async move {
            let numbers = self.reach(shard)?.reserve(*jobs).await?;
            Ok::<_, RouteError>((shard.clone(), numbers))
        });
        let numbers: Numbers = try_join_all(reserved).await?.into_iter().collect();
        let Parts { graph, parts, ids } = spread.split(&numbers);
        let decide = |is_committed| Decide {
            namespace: namespace.clone(),
            graph: graph.clone(),
            is_committed,
        };
        let mut parts = parts.into_iter();
        let (decider, first) = parts.next().expect("a submission has a decider");
        let decider = self.reach(&decider)?;
        // The decider's part is durable before any other: a part that asks finds one who knows.
        decider.prepare(first).await?;
        let others =
            parts.map(|(shard, part)| async move { self.reach(&shard)?.prepare(part).await });
        if let Err(error) = try_join_all(others).await {
            // If this does not arrive the decider decides against it by itself after a while.
            if let Err(untold) = self.decide(&decider, decide(false)).await {
                tracing::warn!(%graph, error = %untold, "the decider could not be told that a submission failed");
            }
            return Err(error);
        }
        self.decide(&decider, decide(true)).await?;
        Ok(Submitted {
            jobs: ids,
            graph,
            repeat: false,
        })
    }

    /// Has a shard decide. If it is here, whoever asked may rely on the other shards having heard of it, as far
    /// as they answer: the ids that they are told now are known there.
    pub(crate) async fn decide(&self, decider: &Reach, decide: Decide) -> Result<(), RouteError> {
        decider.decide(decide).await?;
        if let Reach::Here(handle) = decider {
            let to: Vec<ShardId> = self
                .peers(handle)
                .await?
                .into_iter()
                .filter(|(view, _)| view.waiting > 0)
                .map(|(view, _)| view.record.shard)
                .collect();
            self.deliver_now(handle, &to).await;
        }
        Ok(())
    }
}
