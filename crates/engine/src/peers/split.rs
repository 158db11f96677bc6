//! Cuts a submission over several shards into one part a shard.
//!
//! Pure, like the rest: whoever submits has reserved numbers on every shard, so all ids are known, and each
//! part can say whom its jobs wait for elsewhere and who waits elsewhere for them.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::{NewEdge, NewInput, NewJob, Upstream};
use ganger_types::{
    ClaimKey, Dependent, FailurePolicy, Graph, IdTag, InputRow, JobId, JobKey, JobRef, Namespace,
    Part, PartClaim, PartRecord, Rejection, ShardId, Timestamp,
};

use crate::command::{Fingerprint, check_references, edges_of};

/// Jobs for several shards, submitted together: all or none. Upstreams that are members are named by their
/// place among all jobs; a job named by its id alone is one of the same shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// Whose.
    pub namespace: Namespace,
    /// A repeat under the same key within a day returns the first one's answer.
    pub claim: Option<ClaimKey>,
    /// In order, with their shards.
    pub jobs: Vec<(ShardId, NewJob)>,
}

/// The first number that each shard has reserved, and what ids are made with there.
pub type Numbers = BTreeMap<ShardId, (JobKey, IdTag)>;

/// A submission, cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// The name of the whole.
    pub graph: Graph,
    /// The decider's first.
    pub parts: Vec<(ShardId, Part)>,
    /// The ids, in the order of the submission.
    pub ids: Vec<JobRef>,
}

impl Spread {
    /// The shard that decides: the first job's.
    pub fn decider(&self) -> Option<&ShardId> {
        self.jobs.first().map(|(shard, _)| shard)
    }

    /// How many jobs each shard gets.
    pub fn counts(&self) -> BTreeMap<ShardId, u32> {
        let mut counts = BTreeMap::new();
        for (shard, _) in &self.jobs {
            *counts.entry(shard.clone()).or_default() += 1;
        }
        counts
    }

    /// Whether all its jobs are of this shard, and wait for nobody elsewhere: then no other shard is needed.
    pub fn is_at(&self, here: &ShardId) -> bool {
        let is_here = |edge: &NewEdge| !matches!(edge.upstream, Upstream::Remote { .. });
        let mut jobs = self.jobs.iter();
        jobs.all(|(shard, job)| shard == here && edges_of(job).all(is_here))
    }

    /// What no shard can see in its part alone: members that do not exist, circles, ids given twice.
    ///
    /// # Errors
    /// If there is such a thing.
    pub fn check(&self) -> Result<(), Rejection> {
        if self.jobs.is_empty() {
            return Err(Rejection::NothingSubmitted);
        }
        let jobs: Vec<&NewJob> = self.jobs.iter().map(|(_, job)| job).collect();
        if let Some(index) = jobs.iter().position(|job| job.kind.is_empty()) {
            return Err(Rejection::KindMissing { index });
        }
        let mut given = BTreeSet::new();
        for (index, (shard, job)) in self.jobs.iter().enumerate() {
            if let Some(id) = &job.id
                && !given.insert((shard, id))
            {
                return Err(Rejection::DuplicateId {
                    index,
                    job: id.clone(),
                });
            }
        }
        check_references(&jobs)
    }

    /// Jobs of other shards, outside the submission, that it refers to: whether they exist is for those
    /// shards to say.
    pub fn outside(&self) -> BTreeSet<JobRef> {
        let mut outside = BTreeSet::new();
        for (shard, job) in &self.jobs {
            for edge in edges_of(job) {
                match &edge.upstream {
                    Upstream::Member(_) => {}
                    Upstream::Job(id) => {
                        outside.insert(JobRef {
                            shard: shard.clone(),
                            id: id.clone(),
                        });
                    }
                    Upstream::Remote { job, .. } => {
                        outside.insert(job.clone());
                    }
                }
            }
        }
        outside
    }

    /// What tells a repeat under an idempotency key from another submission.
    pub fn fingerprint(&self) -> u64 {
        Fingerprint::of_spread(&self.jobs)
    }

    /// The ids of its jobs, in order, where these numbers were reserved for it; also those of a repeat.
    pub fn ids(&self, numbers: &Numbers) -> Vec<JobRef> {
        Places::new(&self.jobs, numbers).ids
    }

    /// Cuts it, with the numbers that each shard has reserved.
    ///
    /// # Panics
    /// If it was not checked, or a shard of it has reserved no numbers.
    pub fn split(self, numbers: &Numbers) -> Parts {
        let decider = self.decider().expect("it was checked").clone();
        let places = Places::new(&self.jobs, numbers);
        let (first, tag) = numbers[&decider];
        let graph = format!("{decider}/{}", JobId::made(first, tag));
        let graph = Graph::new(graph).expect("a shard and an id are short");
        let claim = self.claim.clone().map(|key| PartClaim {
            key,
            fingerprint: self.fingerprint(),
            numbers: numbers
                .iter()
                .map(|(shard, (first, tag))| (shard.clone(), *first, *tag))
                .collect(),
        });
        let counts = self.counts();
        let shards: Vec<ShardId> = counts.keys().cloned().collect();
        let mut parts: BTreeMap<ShardId, Part> = BTreeMap::new();
        for (shard, count) in counts {
            let (first, id_tag) = numbers[&shard];
            let record = PartRecord {
                namespace: self.namespace.clone(),
                graph: graph.clone(),
                decider: decider.clone(),
                shards: shards.clone(),
                first,
                count,
                id_tag,
                given: Vec::new(),
                outside: Vec::new(),
                prepared_at: Timestamp(0),
                is_committed: false,
                cancelled: None,
                claim: claim.clone().filter(|_| shard == decider),
            };
            let part = Part {
                record,
                jobs: Vec::new(),
                dependents: Vec::new(),
            };
            parts.insert(shard, part);
        }
        for (place, (shard, mut job)) in self.jobs.into_iter().enumerate() {
            let waits = places.localize(place, &shard, &mut job);
            for (upstream, dependent) in waits {
                let home = &places.of[upstream];
                let part = parts.get_mut(&home.0).expect("every shard has a part");
                part.dependents.push((home.1, dependent));
            }
            let part = parts.get_mut(&shard).expect("every shard has a part");
            part.jobs.push(job);
        }
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_by_key(|(shard, _)| *shard != decider);
        Parts {
            graph,
            parts,
            ids: places.ids,
        }
    }
}

/// Where each member is.
struct Places {
    /// Shard, place in its part, number.
    of: Vec<(ShardId, u32, JobKey)>,
    ids: Vec<JobRef>,
}

impl Places {
    fn new(jobs: &[(ShardId, NewJob)], numbers: &Numbers) -> Self {
        let mut next: BTreeMap<&ShardId, u32> = BTreeMap::new();
        let mut of = Vec::with_capacity(jobs.len());
        let mut ids = Vec::with_capacity(jobs.len());
        for (shard, job) in jobs {
            let (first, tag) = numbers[shard];
            let place = next.entry(shard).or_default();
            let key = JobKey(first.0 + u64::from(*place));
            let id = job.id.clone().unwrap_or_else(|| JobId::made(key, tag));
            of.push((shard.clone(), *place, key));
            ids.push(JobRef {
                shard: shard.clone(),
                id,
            });
            *place += 1;
        }
        Self { of, ids }
    }

    /// Rewrites the edges of a member as its own shard sees them. Gives, for those that lead to members
    /// elsewhere, the upstream's place in the submission and what its shard must know.
    fn localize(&self, place: usize, shard: &ShardId, job: &mut NewJob) -> Vec<(usize, Dependent)> {
        let mut waits = Vec::new();
        let mut each = |slot: u32, edge: &mut NewEdge| {
            let member = match &edge.upstream {
                Upstream::Remote { job, .. } if job.shard == *shard => {
                    edge.upstream = Upstream::Job(job.id.clone());
                    return;
                }
                Upstream::Job(_) | Upstream::Remote { .. } => return,
                Upstream::Member(member) => usize::try_from(*member).expect("places were checked"),
            };
            let (home, local, _) = &self.of[member];
            if home == shard {
                edge.upstream = Upstream::Member(*local);
                return;
            }
            waits.push((member, self.dependent(place, slot, edge.policy)));
            edge.upstream = Upstream::Remote {
                job: self.ids[member].clone(),
                is_member: true,
            };
        };
        for (input, slot) in job.inputs.iter_mut().zip(0_u32..) {
            if let NewInput::Result(edge) = input {
                each(slot, edge);
            }
        }
        for (edge, slot) in job.after.iter_mut().zip(InputRow::EDGE_FIRST..) {
            each(slot, edge);
        }
        waits
    }

    fn dependent(&self, place: usize, slot: u32, policy: FailurePolicy) -> Dependent {
        let (shard, _, key) = &self.of[place];
        Dependent {
            shard: shard.clone(),
            key: *key,
            slot,
            id: self.ids[place].id.clone(),
            policy,
            is_member: true,
        }
    }
}
