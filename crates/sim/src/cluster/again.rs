//! Retries across shards: clients make them during faults, and at the end their outcome is checked.

use std::collections::BTreeSet;

use ganger_types::command::Retry;
use ganger_types::{
    Command, FailurePolicy, Graph, JobId, JobRef, Namespace, Outcome, Reply, ShardId,
};

use super::oracle::{MemberModel, MemberState};
use super::world::World;
use crate::rng::Rng;
use crate::world::{StepOutcome, broken};

/// World microseconds after which all messages have been delivered, including those back and forth.
const SETTLED: u64 = 60_000_000;

/// A retry command in the only namespace.
pub(super) fn retry(jobs: Vec<JobId>, dependents: bool, graph: Option<Graph>) -> Command {
    Command::Retry(Box::new(Retry {
        namespace: Namespace::default(),
        jobs,
        queue: None,
        dependents,
        graph,
    }))
}

impl World {
    /// Retries a graph, on any of its shards.
    pub(super) fn retry_any_graph(&mut self, rng: &mut Rng) -> StepOutcome {
        let recent = self.oracle.graphs.len().saturating_sub(6);
        let graph = rng.maybe(&self.oracle.graphs[recent..]);
        let Some(graph) = graph.filter(|graph| !graph.is_local) else {
            return Ok(());
        };
        let shards: Vec<ShardId> = graph.shards.iter().cloned().collect();
        let (name, shard) = (graph.name.clone(), rng.pick(&shards).clone());
        let number = self.oracle.find(&name).expect("it was submitted");
        self.oracle.touched_graph(number);
        if self.retry_graph(&name, &shard)? > 0 {
            self.reach("graph-retried");
        }
        Ok(())
    }

    /// Retries a graph as a server does: asks the other shards, then retries the members here. Returns the number of
    /// shards asked.
    fn retry_graph(
        &mut self,
        graph: &Graph,
        shard: &ShardId,
    ) -> Result<usize, crate::oracle::Violation> {
        let node = self.place(shard);
        let first = self.turn(node, Some(retry(Vec::new(), false, Some(graph.clone()))))?;
        let Some(Ok(Reply::Retried { passed_on, .. })) = first else {
            return Ok(0);
        };
        loop {
            let rows = self.nodes[node].store.rows.finished.values();
            let ended = rows.map(|row| &row.record).filter(|record| {
                let end = record.finished.as_ref();
                record.graph.as_ref() == Some(graph)
                    && end.is_some_and(|end| end.outcome != Outcome::Succeeded)
            });
            let ids: Vec<JobId> = ended.map(|record| record.id.clone()).collect();
            if ids.is_empty() {
                return Ok(passed_on.len());
            }
            let answer = self.turn(node, Some(retry(ids, false, Some(graph.clone()))))?;
            let Some(Ok(Reply::Retried { count: 1.., .. })) = answer else {
                return Ok(passed_on.len());
            };
        }
    }

    /// At the end, retries all graphs, or all jobs that failed by themselves with their dependents, and checks that
    /// no job stays failed whose dependencies have all succeeded.
    pub(super) fn retry_everything(&mut self) -> StepOutcome {
        if self.oracle.has_restored_store {
            return Ok(());
        }
        let mut skipped = BTreeSet::new();
        let judged = if self.retries_graphs() {
            self.retry_all_graphs()?
        } else {
            self.retry_all_roots(&mut skipped)?
        };
        self.settle()?;
        // Some jobs were named before their dependencies.
        for _ in 0..2 {
            if !self.retries_graphs() {
                self.retry_all_roots(&mut skipped)?;
                self.settle()?;
            }
        }
        for job in judged {
            self.check_retried(&job)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> StepOutcome {
        self.run_until(self.time + SETTLED)?;
        self.nothing_waits()?;
        self.drain()?;
        self.nothing_waits()?;
        self.check_no_stale_waits()
    }

    /// Whether this run retries graphs at its end instead of single jobs.
    fn retries_graphs(&self) -> bool {
        self.tape.seed.is_multiple_of(2)
    }

    /// Retries the graphs whose shards are known on the shard that is asked. Returns their jobs.
    fn retry_all_graphs(&mut self) -> Result<Vec<JobRef>, crate::oracle::Violation> {
        let mut judged = Vec::new();
        for number in 0..self.oracle.graphs.len() {
            self.oracle.touched_graph(number);
            let graph = &self.oracle.graphs[number];
            let (name, shards) = (graph.name.clone(), graph.shards.clone());
            // Not always the shard that decided it.
            let place = number % shards.len().max(1);
            let Some(shard) = shards.into_iter().nth(place) else {
                continue;
            };
            let part = (Namespace::default(), name.clone());
            let parts = &self.nodes[self.place(&shard)].store.parts;
            if !parts.get(&part).is_some_and(|part| part.is_committed) {
                continue;
            }
            judged.extend(self.oracle.graphs[number].ids.clone());
            self.retry_graph(&name, &shard)?;
        }
        Ok(judged)
    }

    /// Retries the jobs that failed by themselves or were cancelled by hand, with their dependents, and those that an
    /// earlier retry said it skipped. Returns the jobs of graphs without earlier retries, because an earlier retry
    /// without dependents leaves jobs that a later one does not reach.
    fn retry_all_roots(
        &mut self,
        skipped: &mut BTreeSet<JobRef>,
    ) -> Result<Vec<JobRef>, crate::oracle::Violation> {
        let is_root = |job: &JobRef, member: &MemberModel| match member.place {
            MemberState::Ended(Outcome::Failed) => {
                member.group != "dependency" || skipped.contains(job)
            }
            MemberState::Ended(Outcome::Cancelled) => member.is_by_hand || skipped.contains(job),
            _ => false,
        };
        let members = &self.oracle.members;
        let is_tame = |graph: usize| {
            let graph = &self.oracle.graphs[graph];
            !graph.is_irregular && !graph.is_cancelled
        };
        let judged = members.iter().filter(|(_, member)| is_tame(member.graph));
        let judged: Vec<JobRef> = judged.map(|(job, _)| job.clone()).collect();
        let roots = members.iter().filter(|(job, member)| is_root(job, member));
        let roots: Vec<JobRef> = roots.map(|(job, _)| job.clone()).collect();
        for number in 0..self.oracle.graphs.len() {
            self.oracle.touched_graph(number);
        }
        for root in roots {
            let node = self.place(&root.shard);
            let answer = self.turn(node, Some(retry(vec![root.id], true, None)))?;
            let Some(Ok(Reply::Retried {
                passed_on,
                skipped: ids,
                ..
            })) = answer
            else {
                continue;
            };
            if !passed_on.is_empty() {
                self.reach("retry-passed-on");
            }
            let shard = &root.shard;
            skipped.extend(ids.into_iter().map(|id| JobRef {
                shard: shard.clone(),
                id,
            }));
        }
        Ok(judged)
    }

    /// Checks that a job has succeeded, or that one of its dependencies has not.
    fn check_retried(&mut self, job: &JobRef) -> StepOutcome {
        let Some(member) = self.oracle.members.get(job) else {
            return Ok(());
        };
        let MemberState::Ended(outcome) = member.place else {
            return Ok(());
        };
        // A job that failed again may have caused it to be cancelled.
        let is_cancelled = outcome == Outcome::Cancelled && self.oracle.is_unneeded(job);
        if outcome == Outcome::Succeeded || is_cancelled {
            return Ok(());
        }
        let mut behind = BTreeSet::new();
        for (slot, (dependency, policy)) in &member.edges {
            let by = self.oracle.members.get(dependency).map(|by| by.place);
            let succeeded = by == Some(MemberState::Ended(Outcome::Succeeded));
            // A job of another graph may have been retried after this one failed again, because the retry of a graph
            // includes only its own jobs.
            let is_outside = self.oracle.members.get(dependency);
            let is_outside = is_outside.is_none_or(|by| by.graph != member.graph);
            let is_beyond = is_outside && self.retries_graphs();
            // Nor does a result that it had come back once it is deleted.
            let is_gone = matches!(by, None | Some(MemberState::Gone));
            if is_gone {
                behind.insert(dependency);
            }
            if *policy != FailurePolicy::Ignore
                && (!succeeded || is_beyond || member.is_unsure_of(*slot))
            {
                behind.insert(dependency);
            }
        }
        if behind.is_empty() {
            let what = format!(
                "{job:?} is {:?} ({}) after a retry, and all that it waits for has succeeded",
                member.place, member.group
            );
            return Err(broken("G1", what));
        }
        Ok(())
    }
}
