//! Followers: finished jobs that ended because another one did, and are retried with it.
//!
//! A job follows another if it failed because that one did not succeed, or was cancelled because no live job needed
//! it any more. The engine holds live jobs only, so the host reads followers from the store into [`PrefetchedRows`].
//! The engine decides which of them are retried.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::limits::BULK_JOBS_MAX;
use ganger_types::{
    Command, Graph, InputRow, InputState, JobId, JobKey, JobRecord, Namespace, Outcome, What,
};

use crate::PrefetchedRows;
use crate::endings::{DEPENDENCY_GROUP, NEEDLESS};
use crate::engine::Engine;
use crate::finished_index::FinishedIndex;

/// Access of the host to finished jobs.
pub trait Archive {
    /// Error of a read that failed.
    type Error;

    /// The jobs that have this one as a dependency.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn dependents(&mut self, key: JobKey) -> Result<Vec<JobKey>, Self::Error>;

    /// The record of a finished job; `None` if it is live or was removed.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn ended(&mut self, key: JobKey) -> Result<Option<JobRecord>, Self::Error>;

    /// The inputs and dependencies of a job.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn inputs(&mut self, key: JobKey) -> Result<Vec<InputRow>, Self::Error>;

    /// The next members of a graph that failed or were cancelled, in order of their numbers, and the last one that
    /// was looked at if there may be more.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn members(&mut self, asked: &Members) -> Result<(Vec<JobKey>, Option<JobKey>), Self::Error>;
}

/// The finished jobs that a command needs besides those that it names by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowersQuery {
    /// Live jobs whose followers the command needs, besides those of the finished jobs in [`Engine::prefetch`].
    pub live: Vec<JobKey>,
    /// Jobs that the command needs with their followers, if they have ended.
    pub ended: Vec<JobKey>,
    /// Members of a graph that the command needs; `None`: none.
    pub members: Option<Members>,
}

/// Members of a graph that are retried at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The namespace of the graph.
    pub namespace: Namespace,
    /// Graph of the members.
    pub graph: Graph,
    /// Only members after this one; `None`: from the first.
    pub after: Option<JobKey>,
    /// Maximum number of members.
    pub limit: usize,
}

/// Adds to `known` the followers of its jobs and of the requested jobs, at any distance, and the requested members.
/// Reads at most one more follower than a command may change.
///
/// # Errors
/// If the archive cannot be read.
pub fn read_followers<A: Archive>(
    archive: &mut A,
    asked: &FollowersQuery,
    known: &mut PrefetchedRows,
) -> Result<(), A::Error> {
    let mut seen: BTreeSet<JobKey> = known.jobs.iter().map(|job| job.key).collect();
    for key in &asked.ended {
        if !seen.contains(key)
            && let Some(record) = archive.ended(*key)?
        {
            seen.insert(*key);
            known.jobs.push(record);
        }
    }
    seen.extend(&asked.live);
    read_near(archive, &mut seen, known)?;
    let Some(members) = &asked.members else {
        return Ok(());
    };
    let (page, up_to) = archive.members(members)?;
    known.members_up_to = up_to;
    // Not `seen`, which also has jobs that were read and are not followers.
    let mut have: BTreeSet<JobKey> = known.jobs.iter().map(|job| job.key).collect();
    for key in &page {
        if have.insert(*key) {
            known.jobs.extend(archive.ended(*key)?);
        }
    }
    known.members = page;
    Ok(())
}

/// Reads the followers of the jobs in `seen`, at any distance.
fn read_near<A: Archive>(
    archive: &mut A,
    seen: &mut BTreeSet<JobKey>,
    known: &mut PrefetchedRows,
) -> Result<(), A::Error> {
    let mut open: Vec<JobKey> = seen.iter().copied().collect();
    let mut found = 0;
    while let Some(key) = open.pop() {
        let mut near = archive.dependents(key)?;
        near.extend(archive.inputs(key)?.iter().filter_map(missing));
        for key in near {
            if found > BULK_JOBS_MAX {
                return Ok(());
            }
            if !seen.insert(key) {
                continue;
            }
            if let Some(record) = archive.ended(key)?.filter(|it| follows(it).is_some()) {
                known.jobs.push(record);
                open.push(key);
                found += 1;
            }
        }
    }
    Ok(())
}

/// Why a finished job ended because of another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowReason {
    /// The job failed because a dependency did not succeed.
    Dependency,
    /// The job was cancelled because no live job needed it any more.
    Dependent,
}

pub(crate) fn follows(record: &JobRecord) -> Option<FollowReason> {
    match record.finished.as_ref()?.outcome {
        Outcome::Succeeded => None,
        Outcome::Failed => {
            let failure = record.failure.as_ref()?;
            let is_dependency = failure.group.as_bytes() == DEPENDENCY_GROUP.as_bytes();
            is_dependency.then_some(FollowReason::Dependency)
        }
        Outcome::Cancelled => match &record.history.last()?.what {
            What::Cancelled { reason } if reason.ends_with(NEEDLESS) => {
                Some(FollowReason::Dependent)
            }
            _ => None,
        },
    }
}

fn missing(row: &InputRow) -> Option<JobKey> {
    match row.state {
        InputState::Missing { dependency, .. } => Some(dependency),
        _ => None,
    }
}

impl Engine {
    /// What the host must read with [`read_followers`] for a command; `None`: nothing.
    pub fn prefetch_followers(&self, command: &Command) -> Option<FollowersQuery> {
        match command {
            Command::Retry(cmd) if cmd.dependents => {
                let live = cmd.jobs.iter();
                let live = live.filter_map(|id| self.find_job(&cmd.namespace, id));
                Some(FollowersQuery {
                    live: live.collect(),
                    ..FollowersQuery::default()
                })
            }
            Command::Receive(cmd) => self.prefetch_of_retries(cmd),
            _ => None,
        }
    }

    /// The numbers of jobs, live or finished, that a command names.
    pub(crate) fn keys_of(
        &self,
        namespace: &Namespace,
        named: &[JobId],
        known: &FinishedIndex,
    ) -> Vec<JobKey> {
        let key_of = |id: &JobId| {
            let finished = || known.find(namespace, id).map(|record| record.key);
            self.find_job(namespace, id).or_else(finished)
        };
        named.iter().filter_map(key_of).collect()
    }
}

/// The finished jobs that follow these, at any distance, in order of their numbers.
pub(crate) fn followers<'a>(roots: &[JobKey], known: &FinishedIndex<'a>) -> Vec<&'a JobRecord> {
    let mut dependents: BTreeMap<JobKey, Vec<JobKey>> = BTreeMap::new();
    for row in known.inputs() {
        if let Some(dependency) = missing(row) {
            dependents.entry(dependency).or_default().push(row.job);
        }
    }
    let mut open = roots.to_vec();
    let roots: BTreeSet<JobKey> = open.iter().copied().collect();
    let mut reached = roots.clone();
    while let Some(key) = open.pop() {
        let downstream = dependents.get(&key).into_iter().flatten();
        let downstream = downstream.map(|key| (*key, FollowReason::Dependency));
        let dependency = known.inputs_of(key).iter().filter_map(|row| missing(row));
        let dependency = dependency.map(|key| (key, FollowReason::Dependent));
        for (near, wanted) in downstream.chain(dependency) {
            let follows = known.by_key(near).and_then(follows);
            if follows == Some(wanted) && reached.insert(near) {
                open.push(near);
            }
        }
    }
    let found = reached.difference(&roots);
    found.filter_map(|key| known.by_key(*key)).collect()
}
