//! The oracle of several shards: submissions, the state of each member, and whether that state is allowed.
//!
//! It knows the submissions as they were sent and sees every commit of every shard. It shares only types with the
//! engine.

mod endings;
mod inputs;

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::{Dependency, NewInput, NewJob};
use ganger_types::reply::Enqueued;
use ganger_types::{
    Bytes, Change, FailurePolicy, Graph, InputRow, JobId, JobKey, JobRecord, JobRef, Namespace,
    Outcome, ShardId,
};

use super::store::Store;
use crate::goals::Goals;
use crate::oracle::CheckResult;
use crate::world::broken;

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
    /// Adds a submission whose parts may now reach the shards.
    pub(crate) fn submitted(&mut self, name: &Graph, jobs: &[(ShardId, NewJob)], ids: &[JobRef]) {
        let graph = self.graphs.len();
        let mut uncommitted = BTreeMap::new();
        for (place, (shard, job)) in jobs.iter().enumerate() {
            let edges: BTreeMap<u32, (JobRef, FailurePolicy)> = edges_of(shard, job, ids);
            let retries = job.retry.as_ref().map_or(3, |policy| policy.retries_max);
            let member = MemberModel {
                graph,
                place: MemberState::Unborn,
                edges,
                users: BTreeSet::new(),
                results: Vec::new(),
                filled: BTreeSet::new(),
                seen: None,
                attempts: 0,
                attempts_max: retries + 1,
                is_leased: false,
                just_ran: false,
                group: String::new(),
                is_by_hand: false,
                has_failed: false,
                unsure: BTreeMap::new(),
                payload: job.payload.clone(),
            };
            uncommitted.insert(ids[place].clone(), member);
        }
        for id in ids {
            let dependencies = uncommitted[id].edges.values();
            let dependencies: Vec<JobRef> = dependencies.map(|edge| edge.0.clone()).collect();
            for dependency in dependencies {
                if let Some(member) = uncommitted.get_mut(&dependency) {
                    member.users.insert(id.clone());
                }
            }
        }
        // A job that waits for a job that a client has changed follows no simple rule either.
        let dependencies = ids.iter().flat_map(|id| uncommitted[id].edges.values());
        let mut outside = dependencies.filter_map(|(dependency, _)| self.members.get(dependency));
        let is_irregular =
            outside.any(|by| by.graph != graph && self.graphs[by.graph].is_irregular);
        self.by_name.insert(name.clone(), graph);
        self.graphs.push(Submission {
            name: name.clone(),
            shards: jobs.iter().map(|(shard, _)| shard.clone()).collect(),
            ids: ids.to_vec(),
            uncommitted,
            replaced: BTreeMap::new(),
            is_local: false,
            is_decided: false,
            is_acknowledged: false,
            is_cancelled: false,
            is_irregular,
        });
    }

    /// Adds the jobs of a committed submission and checks that no id exists twice.
    fn add_members(&mut self, graph: usize) -> CheckResult {
        for (job, member) in std::mem::take(&mut self.graphs[graph].uncommitted) {
            if let Some(earlier) = self.members.get(&job) {
                if earlier.place != MemberState::Gone {
                    let what = format!(
                        "graph {} makes a second job under the id of {job:?}",
                        self.graphs[graph].name
                    );
                    return Err(broken("P1", what));
                }
                self.rename_deleted(&job);
            }
            self.members.insert(job, member);
        }
        Ok(())
    }

    /// Renames a deleted job whose id is used again, so that its edges are not attributed to the new job.
    fn rename_deleted(&mut self, job: &JobRef) {
        self.renamed_count += 1;
        let id = JobId::new(format!("buried-{}", self.renamed_count)).expect("an id is short");
        let shard = job.shard.clone();
        let name = JobRef { shard, id };
        for (other, member) in &mut self.members {
            if member.users.remove(job) {
                member.users.insert(name.clone());
            }
            // A shard knows its own jobs by number. Other shards know them by id, and a retried job asks by that id
            // again.
            let knows_it = other.shard == job.shard && member.place != MemberState::Unborn;
            for (slot, (dependency, _)) in &mut member.edges {
                if dependency != job {
                    continue;
                }
                if knows_it {
                    dependency.clone_from(&name);
                } else {
                    member.unsure.insert(*slot, name.clone());
                }
            }
        }
        if let Some(member) = self.members.remove(job) {
            let replaced = &mut self.graphs[member.graph].replaced;
            replaced.insert(job.clone(), name.clone());
            self.members.insert(name, member);
        }
        self.by_key.retain(|_, other| other != job);
    }

    /// Checks the answer to a submission whose jobs all belong to one shard.
    pub(crate) fn taken(
        &mut self,
        shard: &ShardId,
        jobs: &[NewJob],
        (answers, repeat): (&[Enqueued], bool),
    ) -> CheckResult {
        if self.has_restored_store {
            return Ok(());
        }
        let mut made = Vec::new();
        let mut ids = Vec::new();
        for (job, answer) in jobs.iter().zip(answers) {
            let id = answer.id.clone();
            let name = JobRef {
                shard: shard.clone(),
                id,
            };
            // The answer under a key is repeated even if a job was deleted since.
            if repeat && !self.members.contains_key(&name) {
                let what =
                    format!("a repeat under its key is answered with {name:?}, which never was");
                return Err(broken("P1", what));
            }
            if job.id.is_some() && !repeat {
                self.may_be_answered(&name, job, answer.existed)?;
            }
            if !answer.existed && !repeat {
                made.push((shard.clone(), job.clone()));
            }
            ids.push(name);
        }
        if made.is_empty() {
            return Ok(());
        }
        let edges: BTreeMap<JobRef, BTreeMap<u32, (JobRef, FailurePolicy)>> = jobs
            .iter()
            .zip(&ids)
            .map(|(job, id)| (id.clone(), edges_of(shard, job, &ids)))
            .collect();
        let existed = answers.iter().map(|answer| answer.existed);
        let of_made = ids.iter().zip(existed).filter(|(_, existed)| !existed);
        let ids: Vec<JobRef> = of_made.map(|(id, _)| id.clone()).collect();
        let bare = made
            .into_iter()
            .map(|(shard, job)| (shard, without_edges(job)));
        let bare: Vec<_> = bare.collect();
        let graph = self.graphs.len();
        let name = Graph::new(format!("of {shard}, number {graph}")).expect("a name is short");
        self.submitted(&name, &bare, &ids);
        for id in &ids {
            for (dependency, _) in edges[id].values() {
                if let Some(member) = self.graphs[graph].uncommitted.get_mut(dependency) {
                    member.users.insert(id.clone());
                }
            }
            let member = self.graphs[graph]
                .uncommitted
                .get_mut(id)
                .expect("a member");
            member.edges.clone_from(&edges[id]);
        }
        let outside = edges.values().flat_map(BTreeMap::values);
        let mut outside = outside.filter_map(|(dependency, _)| self.members.get(dependency));
        let is_irregular = outside.any(|by| self.graphs[by.graph].is_irregular);
        let submission = &mut self.graphs[graph];
        submission.is_irregular |= is_irregular;
        submission.is_local = true;
        submission.is_decided = true;
        self.add_members(graph)
    }

    /// Checks whether the answer may report a job with a client-given id as existing or as new (`rel P1`).
    pub(crate) fn may_be_answered(
        &self,
        name: &JobRef,
        job: &NewJob,
        existed: bool,
    ) -> CheckResult {
        let known = self.members.get(name);
        let known = known.filter(|member| member.place != MemberState::Gone);
        let why = match known {
            _ if self.has_restored_store => return Ok(()),
            Some(_) if !existed => "is said to be new, and is there already",
            None if existed => "is said to exist, and nobody made it",
            Some(member) if member.payload != job.payload => "is said to be the same, and is not",
            _ => return Ok(()),
        };
        Err(broken("P1", format!("job {name:?} {why}")))
    }

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

    /// Records that a submission was acknowledged.
    pub(crate) fn acknowledged(&mut self, name: &Graph) -> CheckResult {
        let graph = &mut self.graphs[self.by_name[name]];
        graph.is_acknowledged = true;
        if graph.is_decided || self.has_restored_store {
            return Ok(());
        }
        Err(broken(
            "G8",
            format!("graph {name} was acknowledged and is not decided"),
        ))
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

    /// Checks a commit of a shard.
    pub(crate) fn committed(
        &mut self,
        shard: &ShardId,
        changes: &[Change],
        stores: &BTreeMap<ShardId, &Store>,
    ) -> CheckResult {
        if self.has_restored_store {
            return Ok(());
        }
        for change in changes {
            if let Change::PutPart(record) = change
                && record.is_committed
                && record.decider == *shard
            {
                self.decided(&record.graph, stores)?;
            }
        }
        for (place, change) in changes.iter().enumerate() {
            self.changed(shard, change, &changes[place + 1..], stores)?;
        }
        Ok(())
    }

    fn decided(&mut self, name: &Graph, stores: &BTreeMap<ShardId, &Store>) -> CheckResult {
        let Some(number) = self.find(name) else {
            return Ok(());
        };
        if std::mem::replace(&mut self.graphs[number].is_decided, true) {
            return Ok(());
        }
        self.add_members(number)?;
        let graph = &self.graphs[number];
        let part = (Namespace::default(), name.clone());
        for shard in &graph.shards {
            if !stores[shard].parts.contains_key(&part) {
                let what =
                    format!("graph {name} was decided for without the part of shard {shard}");
                return Err(broken("G8", what));
            }
        }
        if graph.shards.len() > 1 {
            self.goals.reach("decided-over-several-shards");
        }
        Ok(())
    }

    fn changed(
        &mut self,
        shard: &ShardId,
        change: &Change,
        rest: &[Change],
        stores: &BTreeMap<ShardId, &Store>,
    ) -> CheckResult {
        match change {
            Change::PutJob(record) => {
                self.put(shard, record)?;
                if let Some(member) = self.member(shard, record.key) {
                    member.just_ran = false;
                }
                Ok(())
            }
            Change::FinishJob { record, result } => {
                self.put(shard, record)?;
                self.finished(shard, record, result.as_ref(), rest, stores[shard])
            }
            Change::PutInput(row) => self.input(shard, row),
            Change::PutLease(lease) => self.leased(
                shard,
                lease.key,
                lease.attempt,
                lease.attempts_counted,
                stores[shard],
            ),
            Change::RemoveLease(key) => {
                if let Some(member) = self.member(shard, *key) {
                    member.just_ran = member.is_leased;
                    member.is_leased = false;
                }
                Ok(())
            }
            Change::RetryJob(key) => {
                if let Some(member) = self.member(shard, *key) {
                    member.place = MemberState::Live;
                    member.filled.clear();
                    member.seen = None;
                    member.attempts_max = u32::MAX;
                }
                Ok(())
            }
            Change::RemoveJob(key) => self.removed(shard, *key),
            Change::RemovePart(_, name) => self.dropped(shard, name),
            _ => Ok(()),
        }
    }

    fn member(&mut self, shard: &ShardId, key: JobKey) -> Option<&mut MemberModel> {
        let job = self.by_key.get(&(shard.clone(), key))?;
        self.members.get_mut(job)
    }

    fn put(&mut self, shard: &ShardId, record: &JobRecord) -> CheckResult {
        let job = JobRef {
            shard: shard.clone(),
            id: record.id.clone(),
        };
        let Some(member) = self.members.get_mut(&job) else {
            return Err(broken(
                "A1",
                format!("nobody submitted job {shard}/{}", job.id),
            ));
        };
        let graph = &self.graphs[member.graph];
        let known = self.by_key.get(&(shard.clone(), record.key));
        if member.place != MemberState::Unborn && known != Some(&job) {
            return Err(broken(
                "P1",
                format!("there are two jobs {shard}/{}", job.id),
            ));
        }
        if member.place == MemberState::Unborn {
            member.place = MemberState::Live;
            if !graph.is_decided {
                let what = format!(
                    "job {shard}/{} exists and graph {} is not decided",
                    job.id, graph.name
                );
                return Err(broken("G8", what));
            }
            if !graph.is_local && record.graph.as_ref() != Some(&graph.name) {
                let what = format!("job {shard}/{} belongs to graph {:?}", job.id, record.graph);
                return Err(broken("G8", what));
            }
            self.by_key.insert((shard.clone(), record.key), job);
        } else if member.place == MemberState::Gone {
            return Err(broken(
                "K5",
                format!("job {shard}/{} was deleted and is back", job.id),
            ));
        }
        Ok(())
    }

    fn dropped(&mut self, shard: &ShardId, name: &Graph) -> CheckResult {
        match self.find(name) {
            Some(graph) if self.graphs[graph].is_decided => {
                // A part is removed a week after all its jobs have ended.
                let over = self.graphs[graph].ids.iter().all(|id| {
                    id.shard != *shard
                        || !matches!(
                            self.place_in(graph, id),
                            MemberState::Unborn | MemberState::Live
                        )
                });
                if over {
                    return Ok(());
                }
                let what =
                    format!("graph {name} was decided for, and shard {shard} drops its part");
                Err(broken("G8", what))
            }
            _ => Ok(()),
        }
    }
}

fn without_edges(mut job: NewJob) -> NewJob {
    job.inputs.clear();
    job.after.clear();
    job
}

/// The dependencies of a job, by slot.
fn edges_of(
    shard: &ShardId,
    job: &NewJob,
    ids: &[JobRef],
) -> BTreeMap<u32, (JobRef, FailurePolicy)> {
    let inputs = job.inputs.iter().zip(0_u32..);
    let inputs = inputs.filter_map(|(input, slot)| match input {
        NewInput::Result(edge) => Some((slot, edge)),
        NewInput::Value(_) => None,
    });
    let after = job.after.iter().zip(InputRow::EDGE_FIRST..);
    let after = after.map(|(edge, slot)| (slot, edge));
    let both = inputs.chain(after).map(|(slot, edge)| {
        let dependency = match &edge.dependency {
            Dependency::Member(place) => ids[usize::try_from(*place).expect("few")].clone(),
            Dependency::Job(id) => JobRef {
                shard: shard.clone(),
                id: id.clone(),
            },
            Dependency::Remote { job, .. } => job.clone(),
        };
        (slot, (dependency, edge.policy))
    });
    both.collect()
}
