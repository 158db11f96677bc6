//! Plans each member of a submission: a new job, or one that exists already.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::{Dependency, Enqueue};
use ganger_types::reply::Enqueued;
use ganger_types::{
    JobId, JobKey, Namespace, NamespaceSettings, Now, Queue, Rejection, Reply, UniqueKey,
};

use super::edges_of;
use crate::command::fingerprint::Fingerprint;
use crate::engine::Engine;
use crate::finished_index::FinishedIndex;

/// The plan for one member of a submission.
pub(crate) enum Member {
    /// The member becomes a new job.
    New { fingerprint: u64 },
    /// A job with its id or unique key exists already.
    Existing(JobKey, JobId),
    /// An earlier member has its unique key.
    SameAs(usize),
}

impl Member {
    /// The fingerprint of the new job; `None` if the job exists already.
    pub(super) fn fingerprint(&self) -> Option<u64> {
        match self {
            Self::New { fingerprint } => Some(*fingerprint),
            Self::Existing(..) | Self::SameAs(_) => None,
        }
    }
}

impl Engine {
    pub(super) fn repeated_submission(
        &self,
        now: Now,
        cmd: &Enqueue,
    ) -> Result<Option<Reply>, Rejection> {
        let Some(key) = &cmd.idempotency_key else {
            return Ok(None);
        };
        if self.part_with_key(now, &cmd.namespace, key).is_some() {
            return Err(Rejection::IdempotencyConflict);
        }
        let earlier = self
            .find_space(&cmd.namespace)
            .and_then(|space| self.spaces[space].idempotency_records.get(key));
        let Some(earlier) = earlier else {
            return Ok(None);
        };
        if earlier.fingerprint != Fingerprint::of_submission(cmd) {
            return Err(Rejection::IdempotencyConflict);
        }
        // Ids that the client gave are not stored, because the same content contains them again.
        let given: Vec<_> = cmd.jobs.iter().map(|job| job.id.as_ref()).collect();
        let jobs = earlier
            .jobs
            .answer(&given)
            .ok_or(Rejection::IdempotencyConflict)?;
        let answer = |(key, id)| Enqueued {
            key,
            id,
            existed: true,
        };
        Ok(Some(Reply::Enqueued {
            jobs: jobs.into_iter().map(answer).collect(),
            graph: earlier.graph.clone(),
            repeat: true,
        }))
    }

    pub(super) fn plan_members(
        &self,
        now: Now,
        cmd: &Enqueue,
        known: &FinishedIndex,
    ) -> Result<Vec<Member>, Rejection> {
        let mut ids = BTreeSet::new();
        let mut keys: BTreeMap<&UniqueKey, usize> = BTreeMap::new();
        let mut members = Vec::with_capacity(cmd.jobs.len());
        for (index, job) in cmd.jobs.iter().enumerate() {
            if let Some(id) = &job.id {
                if id.as_bytes().is_empty() {
                    return Err(Rejection::IdEmpty { index });
                }
                if !ids.insert(id) {
                    return Err(Rejection::DuplicateId {
                        index,
                        job: id.clone(),
                    });
                }
                if id.parts().is_some() {
                    return Err(Rejection::IdReserved { job: id.clone() });
                }
            }
            let needs_print = job.id.is_some();
            let fingerprint = if needs_print {
                Fingerprint::of_job(job)
            } else {
                0
            };
            let same_id = match &job.id {
                Some(id) => self.same_id(&cmd.namespace, id, fingerprint, known)?,
                None => None,
            };
            let member = match (same_id, &job.unique) {
                (Some((key, id)), _) => Member::Existing(key, id),
                (None, Some(unique)) => match keys.get(&unique.key) {
                    Some(earlier) => Member::SameAs(*earlier),
                    None => {
                        keys.insert(&unique.key, index);
                        self.holder_of(now, cmd, &unique.key)
                            .unwrap_or(Member::New { fingerprint })
                    }
                },
                (None, None) => Member::New { fingerprint },
            };
            members.push(member);
        }
        Ok(members)
    }

    /// The job that has the id already, if its content is the same (`rel P1`). For a job of an undecided part, that
    /// is known only after the decision.
    pub(crate) fn same_id(
        &self,
        namespace: &Namespace,
        id: &JobId,
        fingerprint: u64,
        known: &FinishedIndex,
    ) -> Result<Option<(JobKey, JobId)>, Rejection> {
        let found = match self.find_job(namespace, id) {
            Some(key) => {
                let print = self
                    .job(key)
                    .details
                    .as_deref()
                    .map_or(0, |details| details.fingerprint);
                Some((key, print))
            }
            None => known
                .find(namespace, id)
                .map(|record| (record.key, record.fingerprint)),
        };
        let space = self.find_space(namespace);
        match found {
            None if space.is_some_and(|space| self.spaces[space].promised.contains_key(id)) => {
                Err(Rejection::IdBusy { job: id.clone() })
            }
            None => Ok(None),
            Some((key, print)) if print == fingerprint => Ok(Some((key, id.clone()))),
            Some(_) => Err(Rejection::IdTaken { job: id.clone() }),
        }
    }

    fn holder_of(&self, now: Now, cmd: &Enqueue, key: &UniqueKey) -> Option<Member> {
        let space = self.find_space(&cmd.namespace)?;
        let record = self.spaces[space].unique.get(key)?;
        let is_held = record.until.is_none_or(|until| until > now.wall);
        is_held.then(|| Member::Existing(record.job, record.id.clone()))
    }

    /// Checks that the dependencies of members exist. The dependencies of a member that exists already under an id of
    /// the client may have been removed since.
    pub(super) fn check_dependencies(
        &self,
        cmd: &Enqueue,
        members: &[Member],
        known: &FinishedIndex,
    ) -> Result<(), Rejection> {
        for (index, (job, member)) in cmd.jobs.iter().zip(members).enumerate() {
            if matches!(member, Member::Existing(..)) && job.id.is_some() {
                continue;
            }
            for edge in edges_of(job) {
                let id = match &edge.dependency {
                    Dependency::Job(id) => id,
                    Dependency::Remote { job, .. } if job.shard == self.shard => {
                        let shard = job.shard.clone();
                        return Err(Rejection::OwnShard { shard });
                    }
                    Dependency::Remote { .. } | Dependency::Member(_) => continue,
                };
                let is_there = self.find_job(&cmd.namespace, id).is_some()
                    || known.find(&cmd.namespace, id).is_some();
                if !is_there && self.undecided_job(&cmd.namespace, id).is_some() {
                    return Err(Rejection::JobPrepared { job: id.clone() });
                }
                if !is_there {
                    return Err(Rejection::DependencyNotFound {
                        index,
                        dependency: id.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_room(
        &self,
        cmd: &Enqueue,
        members: &[Member],
        settings: &NamespaceSettings,
    ) -> Result<(), Rejection> {
        let mut coming: BTreeMap<&Queue, u64> = BTreeMap::new();
        for (job, member) in cmd.jobs.iter().zip(members) {
            if matches!(member, Member::New { .. }) {
                *coming.entry(&job.queue).or_default() += 1;
            }
        }
        self.check_new_queues(&cmd.namespace, coming.keys().copied())?;
        let live_here = self
            .find_space(&cmd.namespace)
            .map_or(0, |space| self.spaces[space].live);
        let all: u64 = coming.values().sum();
        for (queue, more) in coming {
            let state = self
                .find_queue(&cmd.namespace, queue)
                .map(|queue| &self.queues[queue]);
            let limit = state.and_then(|state| state.settings.live_max);
            let live = state.map_or(0, |state| state.counts.live());
            if let Some(limit) = limit.filter(|limit| live + more > *limit) {
                return Err(Rejection::QueueFull {
                    queue: queue.clone(),
                    live,
                    limit,
                });
            }
            if let Some(limit) = settings.live_max.filter(|limit| live_here + all > *limit) {
                return Err(Rejection::QueueFull {
                    queue: queue.clone(),
                    live: live_here,
                    limit,
                });
            }
        }
        Ok(())
    }
}
