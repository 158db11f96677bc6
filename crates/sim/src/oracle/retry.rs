//! Checks retries of ended jobs, with the dependencies and dependents that are retried with them.

use std::collections::BTreeSet;

use ganger_types::command::Retry;
use ganger_types::{Answer, FailurePolicy, JobId, JobKey, JobState, Queue, Reply};

use super::job::{PossibleState, Slot};
use super::{CheckResult, Oracle, Violation};

impl Oracle {
    pub(super) fn retry(&mut self, cmd: &Retry, answer: &Answer) -> CheckResult {
        let objections = self.not_there(&cmd.namespace, &cmd.jobs);
        let Some((_, skipped)) = self.changed(answer, &objections)? else {
            return Ok(());
        };
        let mut retried = Vec::new();
        for id in &cmd.jobs {
            let Some(key) = self.find(&cmd.namespace, id) else {
                continue;
            };
            let job = self.known(key);
            if skipped.contains(id) {
                continue;
            }
            if !job.may_have_ended() {
                let what = format!("job {id} was retried, but it had not ended");
                return Err(self.broken("A2", key, what));
            }
            if job.may_be(JobState::Succeeded) && self.user_of(key).is_some() {
                let what = format!("job {id} was retried while its result is in use");
                return Err(self.broken("K2", key, what));
            }
            retried.push(key);
        }
        let followers = self.followers(cmd, answer, &skipped)?;
        for key in &retried {
            self.comes_back(*key, cmd.queue.as_ref());
        }
        for key in &followers {
            self.goals.reach("retried-with-its-dependency");
            self.comes_back(*key, None);
        }
        retried.extend(followers);
        for key in &retried {
            self.settle_retried(*key);
        }
        Ok(())
    }

    /// The jobs that were retried with the named ones. They must have ended because of them, and all such jobs must
    /// be retried unless they would fail again at once.
    pub(super) fn followers(
        &self,
        cmd: &Retry,
        answer: &Answer,
        skipped: &BTreeSet<JobId>,
    ) -> Result<Vec<JobKey>, Violation> {
        let Ok(Reply::Retried { dependents, .. }) = answer else {
            return Ok(Vec::new());
        };
        let mut near: BTreeSet<JobKey> = BTreeSet::new();
        let named = cmd
            .jobs
            .iter()
            .filter_map(|id| self.find(&cmd.namespace, id));
        let named: BTreeSet<JobKey> = named.collect();
        let mut open: Vec<JobKey> = named.iter().copied().collect();
        while let Some(key) = open.pop() {
            let Some(job) = self.jobs.get(&key) else {
                continue;
            };
            let around = job.dependents.iter().copied().chain(job.missing());
            open.extend(around.filter(|key| near.insert(*key)));
        }
        let mut back = Vec::new();
        for id in dependents {
            let key = self.find(&cmd.namespace, id);
            let Some(key) = key.filter(|key| near.contains(key) && !named.contains(key)) else {
                let what = format!("job {id} was retried with jobs that it has nothing to do with");
                return Err(self.wrong("A2", what, Vec::new()));
            };
            let job = self.known(key);
            let may_have_failed = job.may_be(JobState::Failed) || job.may_be(JobState::Cancelled);
            if !may_have_failed {
                let what = format!("job {id} was retried with its dependency, but had not failed");
                return Err(self.broken("A2", key, what));
            }
            back.push(key);
        }
        for key in near.difference(&named) {
            let Some(job) = self.jobs.get(key) else {
                continue;
            };
            let fell = job
                .failed_with
                .is_some_and(|dependency| named.contains(&dependency));
            let is_failed = job.state() == Some(JobState::Failed);
            if fell && is_failed && !back.contains(key) && !skipped.contains(&job.id) {
                let what = format!(
                    "job {} fell with a job that was retried and stays behind",
                    job.id
                );
                return Err(self.broken("A2", *key, what));
            }
        }
        Ok(back)
    }

    pub(super) fn comes_back(&mut self, key: JobKey, queue: Option<&Queue>) {
        self.note(key, "was retried", 0);
        self.goals.reach("retried");
        self.live.insert(key);
        let wall = self.now.wall;
        let job = self.known_mut(key);
        job.result = None;
        job.start = None;
        job.is_retried = true;
        job.failed_with = None;
        if let Some(queue) = queue {
            job.queue = queue.clone();
        }
        job.spec.deadline = job.spec.deadline.filter(|deadline| *deadline > wall);
        job.becomes(vec![PossibleState::new(JobState::Blocked)]);
    }

    pub(super) fn settle_retried(&mut self, key: JobKey) {
        let slots: Vec<Slot> = self.known(key).slots().cloned().collect();
        let renewed: Vec<Slot> = slots
            .into_iter()
            .map(|slot| match slot {
                // A removed dependency had not succeeded, otherwise it would be in use.
                Slot::Missing(dependency, FailurePolicy::Ignore)
                    if !self.jobs.contains_key(&dependency) =>
                {
                    Slot::Ignored
                }
                Slot::Missing(dependency, policy) => self.slot_for(dependency, policy),
                Slot::Delivered(dependency) => match self.slot_for(dependency, FailurePolicy::Fail)
                {
                    Slot::Missing(dependency, _) => {
                        Slot::Missing(dependency, self.edge_policy(key, dependency))
                    }
                    slot => slot,
                },
                slot => slot,
            })
            .collect();
        let job = self.known_mut(key);
        job.slots_mut()
            .zip(renewed)
            .for_each(|(slot, new)| *slot = new);
        if job.missing().is_empty() {
            job.becomes(vec![PossibleState::new(JobState::Ready)]);
        }
    }

    /// The submitted failure policy of the edge to `dependency`.
    pub(super) fn edge_policy(&self, key: JobKey, dependency: JobKey) -> FailurePolicy {
        let job = self.known(key);
        let place = job
            .slots()
            .position(|slot| *slot == Slot::Delivered(dependency));
        let edges = job.spec.inputs.iter().map(|input| match input {
            ganger_types::command::NewInput::Result(edge) => Some(edge.policy),
            ganger_types::command::NewInput::Value(_) => None,
        });
        let edges: Vec<_> = edges
            .chain(job.spec.after.iter().map(|edge| Some(edge.policy)))
            .collect();
        place
            .and_then(|place| edges.get(place).copied().flatten())
            .unwrap_or(FailurePolicy::Wait)
    }
}
