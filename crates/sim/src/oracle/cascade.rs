//! What an ending means for the jobs around it (`rel G1` to `G6`).

use std::collections::BTreeSet;

use ganger_types::{FailurePolicy, JobKey, JobState};

use super::Oracle;
use super::job::{Gone, Slot, Stand, When};

impl Oracle {
    /// Sets where a job may stand. If it has ended for certain, its neighbours follow.
    pub(super) fn stands_become(&mut self, key: JobKey, stands: Vec<Stand>) {
        let mut stands = self.ripened(key, stands);
        if self.due_now.contains(&key) {
            // Two timers of this step could have ended it; which came first is open.
            let twins: Vec<Stand> = stands.iter().filter_map(twin).collect();
            stands.extend(twins);
        }
        let job = self.known_mut(key);
        job.becomes(stands);
        if job.may.iter().all(|stand| stand.state != JobState::Running) && job.hold.is_some() {
            job.end_hold(Gone::Reported);
        }
        if self.known(key).has_ended() {
            self.has_ended(key);
        }
    }

    pub(super) fn ends_without_success(&mut self, key: JobKey, state: JobState) {
        let stands = self
            .known(key)
            .may
            .iter()
            .map(|stand| stand.moved(state))
            .collect();
        self.stands_become(key, stands);
    }

    /// The neighbours of a job that ended: dependents are met or fail, upstreams may be let go.
    pub(super) fn has_ended(&mut self, first: JobKey) {
        let key = first;
        self.live.remove(&key);
        self.free_unique_of(key);
        let mut ended = vec![key];
        let mut failed = BTreeSet::new();
        while let Some(key) = ended.pop() {
            let succeeded = self.known(key).state() == Some(JobState::Succeeded);
            if !succeeded {
                failed.insert(key);
            }
            let dependents: Vec<JobKey> = self.known(key).dependents.iter().copied().collect();
            for dependent in dependents {
                if self.live.contains(&dependent) && self.tell(dependent, key, succeeded) {
                    self.live.remove(&dependent);
                    self.free_unique_of(dependent);
                    ended.push(dependent);
                }
            }
        }
        if failed.len() > 2 {
            self.goals.reach("cascade-over-generations");
        }
        let mut all = failed.clone();
        all.remove(&first);
        all.extend(self.let_go(failed));
        self.may_have_ended_either_way(&all);
    }

    /// Tells a dependent that `upstream` has ended; true if that ends it too.
    fn tell(&mut self, dependent: JobKey, upstream: JobKey, succeeded: bool) -> bool {
        let Some(policy) = self.known(dependent).policy_towards(upstream) else {
            return false;
        };
        if !succeeded && policy == FailurePolicy::Fail {
            self.note(dependent, "its upstream did not succeed:", upstream.0);
            self.known_mut(dependent).moves_to(JobState::Failed);
            return true;
        }
        let met = if succeeded {
            Slot::Delivered(upstream)
        } else {
            Slot::Ignored
        };
        for slot in self.known_mut(dependent).slots_mut() {
            let is_met = match slot {
                Slot::Missing(key, policy) if *key == upstream => {
                    succeeded || *policy == FailurePolicy::Ignore
                }
                _ => false,
            };
            if is_met {
                *slot = met.clone();
            }
        }
        self.note(dependent, "was told of the end of", upstream.0);
        self.unblock_if_met(dependent);
        false
    }

    /// With nothing missing, a blocked job goes to its time or into the line.
    pub(super) fn unblock_if_met(&mut self, key: JobKey) {
        let job = self.known(key);
        if !job.missing().is_empty() || job.state() != Some(JobState::Blocked) {
            return;
        }
        let start = job.start.filter(|due| !due.is_past(self.now));
        let job = self.known_mut(key);
        for stand in &mut job.may {
            *stand = match start {
                Some(due) => stand.scheduled(When::At(due)),
                None => stand.moved(JobState::Ready),
            };
        }
    }

    /// Upstreams of failed jobs, in their graph, that nobody alive needs are called off (`rel G5`).
    fn let_go(&mut self, failed: BTreeSet<JobKey>) -> Vec<JobKey> {
        let mut gone = Vec::new();
        let mut failed: Vec<JobKey> = failed.into_iter().collect();
        while let Some(key) = failed.pop() {
            let (graph, upstreams) = (self.known(key).graph.clone(), self.known(key).missing());
            if graph.is_none() {
                continue;
            }
            for upstream in upstreams {
                let Some(other) = self.jobs.get(&upstream) else {
                    continue;
                };
                let is_kin = other.graph == graph && self.live.contains(&upstream);
                if !is_kin || self.is_needed(upstream) {
                    continue;
                }
                if other.may_be(JobState::Running) {
                    self.goals.reach("running-upstream-called-off");
                }
                self.note(upstream, "nobody needs it any more since the end of", key.0);
                let job = self.known_mut(upstream);
                job.end_hold(Gone::Cancelled);
                job.moves_to(JobState::Cancelled);
                self.live.remove(&upstream);
                self.free_unique_of(upstream);
                failed.push(upstream);
                gone.push(upstream);
            }
        }
        gone
    }

    /// A job between others that end may have failed with the one or been let go by the other: which
    /// is told first is not promised.
    fn may_have_ended_either_way(&mut self, ended: &BTreeSet<JobKey>) {
        for key in ended {
            if ended.len() > 1 || self.due_now.len() > 1 || self.is_bulk {
                let job = self.known_mut(*key);
                let twins: Vec<Stand> = job.may.iter().filter_map(twin).collect();
                job.may.extend(twins);
            }
        }
    }

    /// Whether a live job still takes something from this one.
    fn is_needed(&self, upstream: JobKey) -> bool {
        self.known(upstream).dependents.iter().any(|dependent| {
            self.live.contains(dependent)
                && self.known(*dependent).slots().any(|slot| match slot {
                    Slot::Missing(key, _) | Slot::Delivered(key) => *key == upstream,
                    _ => false,
                })
        })
    }
}

/// The other bad end that the same moment may have brought.
fn twin(stand: &Stand) -> Option<Stand> {
    match stand.state {
        JobState::Failed => Some(stand.moved(JobState::Cancelled)),
        JobState::Cancelled => Some(stand.moved(JobState::Failed)),
        _ => None,
    }
}
