//! Splits a submission over several shards into one part per shard.
//!
//! Jobs that exist already, under ids of the client, are removed first; jobs that wait for them then refer to them as
//! to any existing job.
//!
//! The submitter has reserved numbers on every shard, so all ids are known. Each part contains its edges to other
//! shards and the dependents on other shards.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::{Dependency, Enqueue, NewEdge, NewInput, NewJob};
use ganger_types::{
    Dependent, FailurePolicy, Graph, IdTag, IdempotencyKey, InputRow, JobId, JobKey, JobRef,
    Namespace, Part, PartAnswer, PartRecord, Rejection, ShardId, Timestamp,
};

use crate::command::{Fingerprint, check_references, edges_of};

/// A submission of jobs to several shards: all or none. A dependency that is a member is named by its index among all
/// jobs; an id without a shard means a job of the same shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardedSubmission {
    /// The namespace that owns the jobs.
    pub namespace: Namespace,
    /// Idempotency key: a repeat with the same key within a day returns the answer of the first. `None`: each
    /// submission is new.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Jobs with their shards, in order.
    pub jobs: Vec<(ShardId, NewJob)>,
}

/// The first number that each shard has reserved, with the tag of its ids.
pub type ReservedIds = BTreeMap<ShardId, (JobKey, IdTag)>;

/// A submission, split into the parts of its shards.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardParts {
    /// Name of the graph.
    pub graph: Graph,
    /// Part of each shard; the decider's part is first.
    pub parts: Vec<(ShardId, Part)>,
    /// Shard and id of each job, in the order of the submission.
    pub ids: Vec<JobRef>,
}

impl ShardedSubmission {
    /// The shard that decides: that of the first job without an id of the client, because such a job never exists
    /// already; if all jobs have such ids, that of the first job. `None` without jobs.
    pub fn decider(&self) -> Option<&ShardId> {
        let unnamed = self.jobs.iter().find(|(_, job)| job.id.is_none());
        unnamed.or(self.jobs.first()).map(|(shard, _)| shard)
    }

    /// The number of jobs of each shard.
    pub fn counts(&self) -> BTreeMap<ShardId, u32> {
        let mut counts = BTreeMap::new();
        for (shard, _) in &self.jobs {
            *counts.entry(shard.clone()).or_default() += 1;
        }
        counts
    }

    /// The only shard of the submission; `None` if there are several.
    pub fn only_shard(&self) -> Option<&ShardId> {
        let (first, _) = self.jobs.first()?;
        let mut jobs = self.jobs.iter();
        jobs.all(|(shard, _)| shard == first).then_some(first)
    }

    /// Whether a job of the submission refers to a job of a shard other than its own.
    pub fn refers_elsewhere(&self) -> bool {
        let mut jobs = self.jobs.iter();
        jobs.any(|(shard, job)| {
            edges_of(job).any(|edge| {
                matches!(&edge.dependency, Dependency::Remote { job, .. } if job.shard != *shard)
            })
        })
    }

    /// Converts the submission for its only shard. References to jobs of that shard lose the shard.
    pub fn into_one(mut self, graph: bool) -> Enqueue {
        for (shard, job) in &mut self.jobs {
            for edge in edges_mut(job) {
                if let Dependency::Remote { job, .. } = &edge.dependency
                    && job.shard == *shard
                {
                    edge.dependency = Dependency::Job(job.id.clone());
                }
            }
        }
        Enqueue {
            namespace: self.namespace,
            jobs: self.jobs.into_iter().map(|(_, job)| job).collect(),
            idempotency_key: self.idempotency_key,
            graph,
        }
    }

    /// The jobs that have ids of the client, by shard: index, id and fingerprint.
    pub fn given(&self) -> BTreeMap<ShardId, Vec<(usize, JobId, u64)>> {
        let mut given: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (place, (shard, job)) in self.jobs.iter().enumerate() {
            if let Some(id) = &job.id {
                let one = (place, id.clone(), Fingerprint::of_job(job));
                given.entry(shard.clone()).or_default().push(one);
            }
        }
        given
    }

    /// The rest of the submission without the jobs at these indexes, which exist already.
    pub fn without(self, existed: &BTreeSet<usize>) -> Remainder {
        Remainder::new(self, existed)
    }

    /// Checks what no shard can check in its part alone: members that do not exist, cycles, and ids that occur twice.
    ///
    /// # Errors
    /// If the check fails.
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

    /// Jobs of other shards outside the submission that it refers to; only those shards know whether they exist.
    pub fn outside(&self) -> BTreeSet<JobRef> {
        let mut outside = BTreeSet::new();
        for (shard, job) in &self.jobs {
            for edge in edges_of(job) {
                match &edge.dependency {
                    Dependency::Member(_) => {}
                    Dependency::Job(id) => {
                        outside.insert(JobRef {
                            shard: shard.clone(),
                            id: id.clone(),
                        });
                    }
                    Dependency::Remote { job, .. } => {
                        outside.insert(job.clone());
                    }
                }
            }
        }
        outside
    }

    /// The fingerprint of the submission, for repeats under an idempotency key.
    pub fn fingerprint(&self) -> u64 {
        Fingerprint::of_sharded(&self.jobs)
    }

    /// Splits the submission, with the numbers that each shard has reserved, if none of its jobs exists already.
    ///
    /// # Panics
    /// If the submission was not checked, or one of its shards has reserved no numbers.
    pub fn split(self, numbers: &ReservedIds) -> ShardParts {
        self.without(&BTreeSet::new()).split(numbers)
    }
}

/// A submission without the jobs that exist already.
#[derive(Clone, Debug)]
pub struct Remainder {
    /// New jobs. They refer to the existing ones by their ids.
    spread: ShardedSubmission,
    /// For each job of the whole submission: its shard and id if it exists already.
    there: Vec<Option<JobRef>>,
    /// Fingerprint of each new job, as the client submitted it.
    prints: Vec<u64>,
    /// Fingerprint of the whole submission.
    fingerprint: u64,
}

impl Remainder {
    fn new(spread: ShardedSubmission, existed: &BTreeSet<usize>) -> Self {
        let fingerprint = spread.fingerprint();
        let there: Vec<Option<JobRef>> = spread
            .jobs
            .iter()
            .enumerate()
            .map(|(place, (shard, job))| {
                let id = job.id.clone().filter(|_| existed.contains(&place))?;
                let shard = shard.clone();
                Some(JobRef { shard, id })
            })
            .collect();
        let mut new_place = Vec::with_capacity(there.len());
        let mut next = 0_u32;
        for job in &there {
            new_place.push(next);
            next += u32::from(job.is_none());
        }
        let mut prints = Vec::new();
        let mut jobs = Vec::new();
        for ((shard, mut job), _) in spread
            .jobs
            .into_iter()
            .zip(&there)
            .filter(|(_, id)| id.is_none())
        {
            prints.push(Fingerprint::of_job(&job));
            for edge in edges_mut(&mut job) {
                let Dependency::Member(member) = &mut edge.dependency else {
                    continue;
                };
                let place = usize::try_from(*member).expect("places were checked");
                match &there[place] {
                    Some(job) => {
                        let (job, is_member) = (job.clone(), false);
                        edge.dependency = Dependency::Remote { job, is_member };
                    }
                    None => *member = new_place[place],
                }
            }
            jobs.push((shard, job));
        }
        Self {
            spread: ShardedSubmission {
                namespace: spread.namespace,
                idempotency_key: spread.idempotency_key,
                jobs,
            },
            there,
            prints,
            fingerprint,
        }
    }

    /// The jobs of the submission that are new, by shard.
    pub fn spread(&self) -> &ShardedSubmission {
        &self.spread
    }

    /// The jobs of the whole submission, in order, and whether each existed already. `numbers` are those reserved for
    /// the new jobs, now or by the first submission.
    pub fn answer(&self, numbers: &ReservedIds) -> Vec<(JobRef, bool)> {
        let mut made = Places::new(&self.spread.jobs, numbers).ids.into_iter();
        let there = self.there.iter().cloned();
        there
            .filter_map(|there| match there {
                Some(job) => Some((job, true)),
                None => Some((made.next()?, false)),
            })
            .collect()
    }

    /// Splits the rest of the submission, with the numbers that each shard has reserved.
    ///
    /// # Panics
    /// If it is empty or was not checked, or one of its shards has reserved no numbers.
    pub fn split(self, numbers: &ReservedIds) -> ShardParts {
        let ids = self
            .answer(numbers)
            .into_iter()
            .map(|(job, _)| job)
            .collect();
        let decider = self.spread.decider().expect("it was checked").clone();
        let places = Places::new(&self.spread.jobs, numbers);
        let (first, tag) = numbers[&decider];
        let graph = format!("{decider}/{}", JobId::made(first, tag));
        let graph = Graph::new(graph).expect("a shard and an id are short");
        let mut parts = self.empty_parts(numbers, &decider, &graph);
        let jobs = self.spread.jobs.into_iter().zip(self.prints);
        for (place, ((shard, mut job), print)) in jobs.enumerate() {
            let waits = places.localize(place, &shard, &mut job);
            for (dependency, dependent) in waits {
                let home = &places.of[dependency];
                let part = parts.get_mut(&home.0).expect("every shard has a part");
                part.dependents.push((home.1, dependent));
            }
            let part = parts.get_mut(&shard).expect("every shard has a part");
            part.jobs.push(job);
            part.prints.push(print);
        }
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_by_key(|(shard, _)| *shard != decider);
        ShardParts { graph, parts, ids }
    }

    /// The parts of all shards, without their jobs.
    fn empty_parts(
        &self,
        numbers: &ReservedIds,
        decider: &ShardId,
        graph: &Graph,
    ) -> BTreeMap<ShardId, Part> {
        let there = self.there.iter().zip(0_u32..);
        let existed = there.filter_map(|(job, place)| job.is_some().then_some(place));
        let answer = self.spread.idempotency_key.clone().map(|key| PartAnswer {
            key,
            fingerprint: self.fingerprint,
            numbers: numbers
                .iter()
                .map(|(shard, (first, tag))| (shard.clone(), *first, *tag))
                .collect(),
            existed: existed.collect(),
        });
        let counts = self.spread.counts();
        let shards: Vec<ShardId> = counts.keys().cloned().collect();
        let part = |(shard, count): (ShardId, u32)| {
            let (first, id_tag) = numbers[&shard];
            let record = PartRecord {
                namespace: self.spread.namespace.clone(),
                graph: graph.clone(),
                decider: decider.clone(),
                shards: shards.clone(),
                first,
                count,
                id_tag,
                client_ids: Vec::new(),
                outside: Vec::new(),
                prepared_at: Timestamp(0),
                is_committed: false,
                cancelled: None,
                answer: answer.clone().filter(|_| shard == *decider),
            };
            let part = Part {
                record,
                jobs: Vec::new(),
                prints: Vec::new(),
                dependents: Vec::new(),
            };
            (shard, part)
        };
        counts.into_iter().map(part).collect()
    }
}

fn edges_mut(job: &mut NewJob) -> impl Iterator<Item = &mut NewEdge> {
    let data = job.inputs.iter_mut().filter_map(|input| match input {
        NewInput::Value(_) => None,
        NewInput::Result(edge) => Some(edge),
    });
    data.chain(&mut job.after)
}

/// The location of each member.
struct Places {
    /// Shard, index in its part, and number of each member.
    of: Vec<(ShardId, u32, JobKey)>,
    ids: Vec<JobRef>,
}

impl Places {
    fn new(jobs: &[(ShardId, NewJob)], numbers: &ReservedIds) -> Self {
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

    /// Rewrites the edges of a member for its own shard. For each edge to a member on another shard, returns the
    /// index of that member and the entry for its list of dependents.
    fn localize(&self, place: usize, shard: &ShardId, job: &mut NewJob) -> Vec<(usize, Dependent)> {
        let mut waits = Vec::new();
        let mut each = |slot: u32, edge: &mut NewEdge| {
            let member = match &edge.dependency {
                Dependency::Remote { job, .. } if job.shard == *shard => {
                    edge.dependency = Dependency::Job(job.id.clone());
                    return;
                }
                Dependency::Job(_) | Dependency::Remote { .. } => return,
                Dependency::Member(member) => {
                    usize::try_from(*member).expect("places were checked")
                }
            };
            let (home, local, _) = &self.of[member];
            if home == shard {
                edge.dependency = Dependency::Member(*local);
                return;
            }
            waits.push((member, self.dependent(place, slot, edge.policy)));
            edge.dependency = Dependency::Remote {
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
