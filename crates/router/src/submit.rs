//! Submits jobs to their shards: all or none (`rel G8`); repeating a submission creates no job twice (`rel P1`).
//!
//! A submission whose jobs all belong to one shard is sent there unchanged. For several shards, jobs that exist
//! already under client-chosen ids are found first and left out.

mod decision;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::try_join_all;
use ganger_engine::{Remainder, ReservedIds, ShardParts, ShardedSubmission};
use ganger_types::{Graph, JobRef, PartRecord, Rejection, ShardId, Timestamp};
use tokio::time::Instant;

use crate::{Address, RouteError, Router};
use decision::UndecidedSubmission;

/// Maximum number of attempts when a shard loses its reservation by a restart, or stops to move to another node.
const ATTEMPTS_MAX: u32 = 3;
/// Longest wait for another submission of the same jobs, or under the same key, to be decided; and, between the nodes of a
/// cluster, for a node that serves a shard.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between checks; each is half as long again as the last, up to the maximum.
const BUSY_PAUSE: Duration = Duration::from_millis(30);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(500);

/// The result of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The jobs, in the order of the submission, each with whether it existed already.
    pub jobs: Vec<(JobRef, bool)>,
    /// Id of the graph, the same on all its shards; `None` if there is none, or all jobs existed already.
    pub graph: Option<Graph>,
    /// Whether this is the result of an earlier submission under the same key.
    pub repeat: bool,
}

/// The retry loop of a submission that waits for another one to be decided, or for a shard.
#[derive(Debug)]
pub struct Busy {
    until: Instant,
    next: Duration,
}

impl Default for Busy {
    fn default() -> Self {
        Self {
            until: Instant::now() + BUSY_TIMEOUT,
            next: BUSY_PAUSE,
        }
    }
}

impl Busy {
    /// Waits for the next try; returns false if the submission has waited long enough.
    pub async fn pause(&mut self) -> bool {
        if Instant::now() + self.next > self.until {
            return false;
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 3 / 2).min(BUSY_PAUSE_MAX);
        true
    }
}

/// A submission over several shards before its decision.
enum Prepared<'a> {
    /// Nothing is left to decide: all of its jobs exist.
    Exists(Submitted),
    /// Every shard has its part; with the result once it is committed.
    Undecided(UndecidedSubmission<'a>, Submitted),
}

impl Router {
    /// Whether the topology has shards besides those of this process.
    pub fn knows_others(&self) -> bool {
        !self.0.topology.is_alone() || self.0.here.now().len() > 1
    }

    /// Submits jobs to any shards; the reply comes when every part and the decision are durable. `graph` gives the
    /// jobs a graph id even if they do not depend on each other; `at` is the caller's time, for namespaces on their
    /// callers' clocks.
    ///
    /// # Errors
    /// If the submission is refused, or a shard cannot be reached: then nothing of it stays, except that a shard that
    /// could not be reached keeps its part, which does not run, until it learns the decision. After
    /// [`RouteError::OutcomeUnknown`] either all of it exists, or nothing.
    pub async fn submit(
        &self,
        spread: ShardedSubmission,
        graph: bool,
        at: Option<Timestamp>,
    ) -> Result<Submitted, RouteError> {
        let mut moving = Busy::default();
        for shard in spread.counts().keys() {
            while let Err(error) = self.reach(shard) {
                if !self.waits_for_node(&error, &mut moving).await {
                    return Err(error);
                }
            }
        }
        if let Some(shard) = spread.only_shard().cloned() {
            let sent = self.submit_to_one(&shard, spread, graph, at, &mut moving);
            return sent.await;
        }
        spread.check()?;
        let mut busy = Busy::default();
        let mut attempt = 1;
        loop {
            match self.submit_to_many(&spread).await {
                Err(error) if error.is("not_reserved") && attempt < ATTEMPTS_MAX => attempt += 1,
                Err(error) if error.is_busy() && busy.pause().await => {}
                // Nothing of it stays, so it can be done again; after an unknown outcome it cannot.
                Err(error) if self.waits_for_node(&error, &mut moving).await => {}
                // A shard that stops is away the next time. One whose store confirms nothing refuses soon.
                Err(error)
                    if error.is_unavailable()
                        && self.topology().owners().is_some()
                        && attempt < ATTEMPTS_MAX
                        && moving.pause().await =>
                {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits for a moment if a shard is on its way to another node of a cluster; returns whether it is to be tried again.
    async fn waits_for_node(&self, error: &RouteError, moving: &mut Busy) -> bool {
        self.is_between_nodes(error) && moving.pause().await
    }

    /// Whether a shard was not reached because it is on its way to another node of a cluster, which will serve it soon. A
    /// fixed server that does not answer is reported at once (`rel P4`), and so is a shard that no node may serve.
    fn is_between_nodes(&self, error: &RouteError) -> bool {
        let RouteError::Unreachable { shard, .. } = error else {
            return false;
        };
        let topology = self.topology();
        topology.owners().is_some() && !matches!(topology.address(shard), Address::Closed(_))
    }

    /// Submits to the single shard that owns all the jobs, which checks them.
    async fn submit_to_one(
        &self,
        shard: &ShardId,
        spread: ShardedSubmission,
        graph: bool,
        at: Option<Timestamp>,
        moving: &mut Busy,
    ) -> Result<Submitted, RouteError> {
        if spread.refers_elsewhere() {
            while let Err(error) = self.check_outside(&spread, Some(shard)).await {
                if !self.waits_for_node(&error, moving).await {
                    return Err(error);
                }
            }
        }
        let submission = spread.into_one(graph);
        let is_keyed = submission.idempotency_key.is_some();
        // Once it was sent without an answer, no failure to send it again says that it was not taken.
        let mut unknown = None;
        let mut busy = Busy::default();
        loop {
            let enqueued = match self.reach(shard) {
                Ok(reach) => reach.enqueue(submission.clone(), at).await,
                Err(error) => Err(error),
            };
            match enqueued {
                Err(error) if error.is_busy() && busy.pause().await => {}
                Err(error) if self.waits_for_node(&error, moving).await => {}
                Err(error @ RouteError::OutcomeUnknown { .. })
                    if is_keyed && self.topology().owners().is_some() && moving.pause().await =>
                {
                    unknown = Some(error);
                }
                Err(error) if error.is_absence() => return Err(unknown.unwrap_or(error)),
                outcome => return outcome,
            }
        }
    }

    async fn submit_to_many(&self, spread: &ShardedSubmission) -> Result<Submitted, RouteError> {
        let prepared = self.prepare(spread).await;
        match prepared.map_err(RouteError::before_the_decision)? {
            Prepared::Exists(submitted) => Ok(submitted),
            Prepared::Undecided(undecided, submitted) => {
                undecided.commit().await?;
                Ok(submitted)
            }
        }
    }

    /// Prepares the parts of a submission on their shards, unless all of it exists already.
    async fn prepare(&self, spread: &ShardedSubmission) -> Result<Prepared<'_>, RouteError> {
        if let Some(earlier) = self.earlier(spread).await? {
            return Ok(Prepared::Exists(earlier));
        }
        let existed = self.find_given(spread).await?;
        let rest = spread.clone().without(&existed);
        if rest.spread().jobs.is_empty() {
            return Ok(Prepared::Exists(Submitted {
                jobs: rest.answer(&ReservedIds::new()),
                graph: None,
                repeat: false,
            }));
        }
        self.check_outside(rest.spread(), None).await?;
        self.prepare_rest(rest).await
    }

    /// Returns the result of an earlier submission under the same key.
    async fn earlier(&self, spread: &ShardedSubmission) -> Result<Option<Submitted>, RouteError> {
        let (Some(key), Some(decider)) = (&spread.idempotency_key, spread.decider()) else {
            return Ok(None);
        };
        let found = self
            .reach(decider)?
            .find_submission(&spread.namespace, key)
            .await?;
        let Some(PartRecord {
            graph,
            answer: Some(answer),
            is_committed,
            ..
        }) = found
        else {
            return Ok(None);
        };
        if answer.fingerprint != spread.fingerprint() {
            return Err(Rejection::IdempotencyConflict.into());
        }
        if !is_committed {
            // Its own submitter is still working, or has gone; preparing reports which.
            return Ok(None);
        }
        let numbers: ReservedIds = answer
            .numbers
            .into_iter()
            .map(|(shard, first, tag)| (shard, (first, tag)))
            .collect();
        let existed = answer.existed.into_iter().map(usize::try_from);
        let existed: BTreeSet<usize> = existed.filter_map(Result::ok).collect();
        let earlier = spread.clone().without(&existed);
        Ok(Some(Submitted {
            jobs: earlier.answer(&numbers),
            graph: Some(graph),
            repeat: true,
        }))
    }

    /// Returns the indexes of jobs that exist already, under client-chosen ids and with the same content.
    async fn find_given(&self, spread: &ShardedSubmission) -> Result<BTreeSet<usize>, RouteError> {
        let looks = spread.given().into_iter().map(|(shard, jobs)| async move {
            let ids = jobs.iter().map(|(_, id, print)| (id.clone(), *print));
            let reach = self.reach(&shard)?;
            let found = reach.find_given(&spread.namespace, ids.collect()).await?;
            let places = jobs.iter().map(|(place, ..)| *place).zip(found);
            let there = places.filter_map(|(place, is_there)| is_there.then_some(place));
            Ok::<_, RouteError>(there.collect::<Vec<_>>())
        });
        Ok(try_join_all(looks).await?.into_iter().flatten().collect())
    }

    /// Refuses references to missing jobs, on all shards but the one that checks them itself.
    async fn check_outside(
        &self,
        spread: &ShardedSubmission,
        judge: Option<&ShardId>,
    ) -> Result<(), RouteError> {
        let mut by_shard = BTreeMap::<ShardId, Vec<_>>::new();
        let outside = spread.outside().into_iter();
        for job in outside.filter(|job| Some(&job.shard) != judge) {
            by_shard.entry(job.shard).or_default().push(job.id);
        }
        for (shard, ids) in by_shard {
            let missing = self
                .reach(&shard)?
                .find_missing(&spread.namespace, &ids)
                .await?;
            if let Some(id) = missing.into_iter().next() {
                let job = JobRef { shard, id };
                return Err(RouteError::NoSuchDependency { job });
            }
        }
        Ok(())
    }

    /// Prepares the jobs of a submission that do not exist yet.
    async fn prepare_rest(&self, rest: Remainder) -> Result<Prepared<'_>, RouteError> {
        let namespace = rest.spread().namespace.clone();
        let counts = rest.spread().counts();
        let reserved = counts.iter().map(|(shard, jobs)| async move {
            let numbers = self.reach(shard)?.reserve(*jobs).await?;
            Ok::<_, RouteError>((shard.clone(), numbers))
        });
        let numbers: ReservedIds = try_join_all(reserved).await?.into_iter().collect();
        let jobs = rest.answer(&numbers);
        let ShardParts { graph, parts, .. } = rest.split(&numbers);
        let mut parts = parts.into_iter();
        let (decider, first) = parts.next().expect("a submission has a decider");
        let client = self.reach(&decider)?;
        let mut undecided = UndecidedSubmission::new(self, decider, namespace, graph.clone());
        let prepared = async {
            // The decider's part is durable before any other, so that a part that asks finds it.
            client.prepare(first).await?;
            let others =
                parts.map(|(shard, part)| async move { self.reach(&shard)?.prepare(part).await });
            try_join_all(others).await
        };
        if let Err(error) = prepared.await {
            undecided.abort().await;
            return Err(error);
        }
        let submitted = Submitted {
            jobs,
            graph: Some(graph),
            repeat: false,
        };
        Ok(Prepared::Undecided(undecided, submitted))
    }
}
