//! Consequences of endings (`rel G1` to `G6`).

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::{FailurePolicy, JobKey, JobState};

use super::Oracle;
use super::job::{DueTime, ModelJob, PossibleState, Slot, TokenEnd};

impl Oracle {
    /// Sets the possible states of a job. If it has certainly ended, applies the consequences.
    pub(super) fn set_states_with_consequences(&mut self, key: JobKey, stands: Vec<PossibleState>) {
        self.set_possible_states(key, stands);
        if self.known(key).has_ended() {
            self.apply_endings(&[key]);
        }
    }

    /// Sets the possible states of a job; the caller applies the consequences.
    pub(super) fn set_possible_states(&mut self, key: JobKey, stands: Vec<PossibleState>) {
        let mut stands = self.ripened(key, stands);
        if self.two_timers_may_have_met() && self.due_now.contains(&key) {
            let twins: Vec<PossibleState> = stands.iter().filter_map(alternative_end).collect();
            stands.extend(twins);
        }
        let job = self.known_mut(key);
        job.becomes(stands);
        if job.may.iter().all(|stand| stand.state != JobState::Running) && job.hold.is_some() {
            job.end_hold(TokenEnd::Reported);
        }
    }

    pub(super) fn ends_without_success(&mut self, key: JobKey, state: JobState) {
        let stands = self
            .known(key)
            .may
            .iter()
            .map(|stand| stand.moved(state))
            .collect();
        self.set_states_with_consequences(key, stands);
    }

    /// Applies the consequences for jobs that ended together: first dependents proceed or fail, then dependencies
    /// that no job needs are cancelled. The order of the jobs does not matter (`rel G6`).
    pub(super) fn apply_endings(&mut self, first: &[JobKey]) {
        let mut ended = first.to_vec();
        let mut failed = BTreeSet::new();
        for key in first {
            self.is_over(*key);
        }
        while let Some(key) = ended.pop() {
            let succeeded = self.known(key).state() == Some(JobState::Succeeded);
            if !succeeded {
                failed.insert(key);
            }
            let dependents: Vec<JobKey> = self.known(key).dependents.iter().copied().collect();
            for dependent in dependents {
                if self.live.contains(&dependent) && self.tell(dependent, key, succeeded) {
                    self.is_over(dependent);
                    ended.push(dependent);
                }
            }
        }
        if failed.len() > 2 {
            self.goals.reach("cascade-over-generations");
        }
        let mut followed: BTreeSet<JobKey> = self.cancel_unneeded(&failed).into_iter().collect();
        followed.extend(failed);
        for key in first {
            followed.remove(key);
        }
        if self.two_timers_may_have_met() {
            self.may_have_ended_either_way(&followed);
        }
    }

    /// Removes an ended job from the live jobs.
    fn is_over(&mut self, key: JobKey) {
        self.live.remove(&key);
        self.free_unique_of(key);
        let jumps = self.jumps;
        self.known_mut(key).jumps_at_end = jumps;
    }

    /// Whether two timers of a step may concern one job. Times on different clocks have no order, so it is not
    /// determined which of them ended the job.
    fn two_timers_may_have_met(&self) -> bool {
        self.due_now.len() + self.replacing > 1
    }

    /// Applies the end of `dependency` to a dependent. Returns true if that ends the dependent too.
    fn tell(&mut self, dependent: JobKey, dependency: JobKey, succeeded: bool) -> bool {
        let Some(policy) = self.known(dependent).policy_towards(dependency) else {
            return false;
        };
        if !succeeded && policy == FailurePolicy::Fail {
            self.note(dependent, "its dependency did not succeed:", dependency.0);
            let job = self.known_mut(dependent);
            job.moves_to(JobState::Failed);
            job.failed_with = Some(dependency);
            return true;
        }
        let met = if succeeded {
            Slot::Delivered(dependency)
        } else {
            Slot::Ignored
        };
        for slot in self.known_mut(dependent).slots_mut() {
            let is_met = match slot {
                Slot::Missing(key, policy) if *key == dependency => {
                    succeeded || *policy == FailurePolicy::Ignore
                }
                _ => false,
            };
            if is_met {
                *slot = met.clone();
            }
        }
        self.note(dependent, "was told of the end of", dependency.0);
        self.unblock_if_met(dependent);
        false
    }

    /// A leased job waits for nothing, so its dependencies that may have ended earlier in the turn have ended.
    pub(super) fn dependencies_have_ended(&mut self, key: JobKey) {
        let waits = |job: &ModelJob| job.state() == Some(JobState::Blocked);
        if !self.jobs.get(&key).is_some_and(waits) {
            return;
        }
        for dependency in self.known(key).missing() {
            self.must_have_ended(dependency);
        }
    }

    /// Narrows a job to its ended states: by itself, or because of a dependency.
    fn must_have_ended(&mut self, key: JobKey) {
        let Some(job) = self.jobs.get(&key) else {
            return;
        };
        if job.has_ended() {
            return;
        }
        if job.may_have_ended() {
            let ended = job.may.iter().copied();
            let stands = ended.filter(|stand| stand.state.is_terminal()).collect();
            return self.set_states_with_consequences(key, stands);
        }
        for dependency in job.missing() {
            self.must_have_ended(dependency);
            if self.known(key).has_ended() {
                return;
            }
        }
    }

    /// Moves a blocked job without missing dependencies to scheduled or ready.
    pub(super) fn unblock_if_met(&mut self, key: JobKey) {
        let job = self.known(key);
        if !job.missing().is_empty() || job.state() != Some(JobState::Blocked) {
            return;
        }
        let start = job.start.filter(|due| !due.is_past(self.now));
        let job = self.known_mut(key);
        for stand in &mut job.may {
            *stand = match start {
                Some(due) => stand.scheduled(DueTime::At(due)),
                None => stand.moved(JobState::Ready),
            };
        }
    }

    /// Cancels the dependencies of failed jobs in their graph that no live job needs (`rel G5`), and theirs in turn.
    fn cancel_unneeded(&mut self, failed: &BTreeSet<JobKey>) -> Vec<JobKey> {
        let mut gone = Vec::new();
        let mut suspects: BTreeMap<JobKey, JobKey> = BTreeMap::new();
        for key in failed {
            suspects.extend(self.dependencies_in_graph(*key));
        }
        while let Some((dependency, since)) = suspects
            .iter()
            .map(|(dependency, since)| (*dependency, *since))
            .find(|(dependency, _)| self.live.contains(dependency) && !self.is_needed(*dependency))
        {
            if self.known(dependency).may_be(JobState::Running) {
                self.goals.reach("running-dependency-cancelled");
            }
            self.note(
                dependency,
                "nobody needs it any more since the end of",
                since.0,
            );
            let job = self.known_mut(dependency);
            job.end_hold(TokenEnd::Cancelled);
            // One that may have failed in the same turn is not cancelled any more.
            let failed = job.may.iter().copied();
            let failed: Vec<_> = failed
                .filter(|stand| stand.state == JobState::Failed)
                .collect();
            job.moves_to(JobState::Cancelled);
            job.may.extend(failed);
            self.is_over(dependency);
            suspects.extend(self.dependencies_in_graph(dependency));
            gone.push(dependency);
        }
        gone
    }

    /// The missing dependencies of a job within its graph.
    fn dependencies_in_graph(&self, key: JobKey) -> Vec<(JobKey, JobKey)> {
        let job = self.known(key);
        let is_kin = |dependency: &JobKey| {
            let other = self.jobs.get(dependency);
            job.graph.is_some() && other.is_some_and(|other| other.graph == job.graph)
        };
        let missing = job.missing().into_iter().filter(is_kin);
        missing.map(|dependency| (dependency, key)).collect()
    }

    /// A job between two ended jobs may have failed because of the one or been cancelled because of the other.
    fn may_have_ended_either_way(&mut self, ended: &BTreeSet<JobKey>) {
        for key in ended {
            let job = self.known_mut(*key);
            let twins: Vec<PossibleState> = job.may.iter().filter_map(alternative_end).collect();
            job.may.extend(twins);
        }
    }

    /// Whether a live job still needs this one.
    fn is_needed(&self, dependency: JobKey) -> bool {
        self.known(dependency).dependents.iter().any(|dependent| {
            self.live.contains(dependent)
                && self.known(*dependent).slots().any(|slot| match slot {
                    Slot::Missing(key, _) | Slot::Delivered(key) => *key == dependency,
                    _ => false,
                })
        })
    }
}

/// The other unsuccessful end that is possible at the same time.
fn alternative_end(stand: &PossibleState) -> Option<PossibleState> {
    match stand.state {
        JobState::Failed => Some(stand.moved(JobState::Cancelled)),
        JobState::Cancelled => Some(stand.moved(JobState::Failed)),
        _ => None,
    }
}
