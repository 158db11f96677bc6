//! The oracle of several shards: submissions, the state of each member, and whether that state is allowed.
//!
//! It knows the submissions as they were sent and sees every commit of every shard. It shares only types with the
//! engine.

mod commits;
mod endings;
mod inputs;
mod submissions;

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::{Bytes, FailurePolicy, Graph, JobKey, JobRef, Outcome, ShardId};

use crate::goals::Goals;

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    Unborn,
    Live,
    Ended(Outcome),
    Gone,
}

/// A member of a submission.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the checks ask for"
)]
pub(crate) struct MemberModel {
    pub(crate) graph: usize,
    pub(crate) place: MemberState,
    /// The dependency of each slot, with its failure policy.
    pub(crate) edges: BTreeMap<u32, (JobRef, FailurePolicy)>,
    /// Members that wait for it.
    pub(crate) users: BTreeSet<JobRef>,
    /// Results of its successful attempts; more than one only if it was retried.
    results: Vec<Bytes>,
    filled: BTreeSet<u32>,
    seen: Option<Vec<Bytes>>,
    attempts: u32,
    attempts_max: u32,
    is_leased: bool,
    /// Whether its lease has ended and the job has not changed since.
    just_ran: bool,
    /// Failure group of its end.
    pub(crate) group: String,
    /// Whether a client cancelled or deleted it, or tried to.
    pub(crate) is_by_hand: bool,
    /// Whether it has ever ended without success; it may have been retried since.
    has_failed: bool,
    /// Slots whose dependency on another shard was deleted and replaced by another job with its id: either of the two
    /// may meet them. The value is the deleted job.
    unsure: BTreeMap<u32, JobRef>,
    /// The payload, as submitted.
    payload: Bytes,
}

impl MemberModel {
    /// Whether a slot has been met.
    pub(crate) fn has(&self, slot: u32) -> bool {
        self.filled.contains(&slot)
    }

    /// Whether either of two jobs with the same id may have met a slot.
    pub(crate) fn is_unsure_of(&self, slot: u32) -> bool {
        self.unsure.contains_key(&slot)
    }
}

/// A submission, as it was sent.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the checks ask for"
)]
pub(crate) struct Submission {
    pub(crate) name: Graph,
    pub(crate) shards: BTreeSet<ShardId>,
    pub(crate) ids: Vec<JobRef>,
    /// Jobs until the submission is committed; other submissions may have jobs with the same ids.
    uncommitted: BTreeMap<JobRef, MemberModel>,
    /// Deleted jobs whose ids later submissions used again, with the names that the oracle gave to the deleted ones.
    replaced: BTreeMap<JobRef, JobRef>,
    /// Whether its only shard enqueued it without a decision.
    pub(crate) is_local: bool,
    /// Whether a decision for the submission is durable.
    pub(crate) is_decided: bool,
    pub(crate) is_acknowledged: bool,
    /// Whether it was cancelled, with effect.
    pub(crate) is_cancelled: bool,
    /// Whether a client retried a job of it, or may have cancelled it; its outcomes then follow no simple rule.
    pub(crate) is_irregular: bool,
}

/// The model of the cluster, built from requests, answers and commits.
#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) graphs: Vec<Submission>,
    by_name: BTreeMap<Graph, usize>,
    pub(crate) members: BTreeMap<JobRef, MemberModel>,
    by_key: BTreeMap<(ShardId, JobKey), JobRef>,
    /// Number of deleted jobs whose ids were used again.
    renamed_count: usize,
    pub(crate) goals: Goals,
    /// Whether a store was restored; only each shard by itself is then checked.
    pub(crate) has_restored_store: bool,
}

impl Oracle {
    /// The state of a job of a submission.
    pub(crate) fn place_in(&self, graph: usize, job: &JobRef) -> MemberState {
        if self.graphs[graph].replaced.contains_key(job) {
            return MemberState::Gone;
        }
        let member = self.members.get(job);
        let member = member.filter(|member| member.graph == graph);
        member.map_or(MemberState::Unborn, |member| member.place)
    }

    /// Whether this attempt of a job is the live one.
    pub(crate) fn holds(&self, job: &JobRef, attempt: u32) -> bool {
        let member = self.members.get(job);
        member.is_some_and(|member| member.is_leased && member.attempts == attempt)
    }

    /// Records that a client will cancel or delete a job.
    pub(crate) fn ended_by_hand(&mut self, job: &JobRef) {
        if let Some(member) = self.members.get_mut(job) {
            member.is_by_hand = true;
        }
    }

    /// Records that a client will retry a job. Its dependents and dependencies, on any shard, follow no simple rule
    /// from now on.
    pub(crate) fn touched(&mut self, job: &JobRef) {
        let Some(member) = self.members.get(job) else {
            return;
        };
        let graph = member.graph;
        self.touched_graph(graph);
    }

    /// Records that a client will retry a job with its followers, which may include jobs of earlier submissions and
    /// their dependents.
    pub(crate) fn touched_around(&mut self, job: &JobRef) {
        let Some(first) = self.members.get(job).map(|member| member.graph) else {
            return;
        };
        let mut around = BTreeSet::from([first]);
        loop {
            let known = around.len();
            for member in self.members.values() {
                let dependencies = member.edges.values();
                let dependencies = dependencies.filter_map(|(by, _)| self.members.get(by));
                for by in dependencies {
                    if around.contains(&member.graph) || around.contains(&by.graph) {
                        around.extend([member.graph, by.graph]);
                    }
                }
            }
            if around.len() == known {
                break;
            }
        }
        for graph in around {
            self.touched_graph(graph);
        }
    }

    pub(crate) fn touched_graph(&mut self, graph: usize) {
        if std::mem::replace(&mut self.graphs[graph].is_irregular, true) {
            return;
        }
        let ids: BTreeSet<JobRef> = self.graphs[graph].ids.iter().cloned().collect();
        let followers: BTreeSet<usize> = self
            .members
            .values()
            .filter(|member| {
                member
                    .edges
                    .values()
                    .any(|(dependency, _)| ids.contains(dependency))
            })
            .map(|member| member.graph)
            .collect();
        for follower in followers {
            self.touched_graph(follower);
        }
    }

    pub(crate) fn find(&self, name: &Graph) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    fn member(&mut self, shard: &ShardId, key: JobKey) -> Option<&mut MemberModel> {
        let job = self.by_key.get(&(shard.clone(), key))?;
        self.members.get_mut(job)
    }
}
