//! Submissions: what clients sent, what they were answered, and the members that this makes.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::{Dependency, NewInput, NewJob};
use ganger_types::reply::Enqueued;
use ganger_types::{FailurePolicy, Graph, InputRow, JobId, JobRef, ShardId};

use super::{MemberModel, MemberState, Oracle, Submission};
use crate::oracle::CheckResult;
use crate::world::broken;

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
    pub(super) fn add_members(&mut self, graph: usize) -> CheckResult {
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
