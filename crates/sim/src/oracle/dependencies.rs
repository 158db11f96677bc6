//! Checks dependencies that operators add and remove.

use std::collections::BTreeSet;

use ganger_types::command::{AddDependencies, RemoveDependencies};
use ganger_types::{Answer, FailurePolicy, JobKey, JobState};

use super::job::Slot;
use super::{CheckResult, Oracle};

impl Oracle {
    pub(super) fn add_dependencies(
        &mut self,
        cmd: &AddDependencies,
        answer: &Answer,
    ) -> CheckResult {
        let mut objections = self.not_there(&cmd.namespace, &cmd.on);
        let key = self.find(&cmd.namespace, &cmd.job);
        let Some(key) = key else {
            objections.insert("job_not_found");
            return self.changed(answer, &objections).map(|_| ());
        };
        if self.known(key).state() != Some(JobState::Blocked) {
            objections.insert("wrong_state");
        }
        let dependencies: Vec<JobKey> = cmd
            .on
            .iter()
            .filter_map(|id| self.find(&cmd.namespace, id))
            .collect();
        if dependencies
            .iter()
            .any(|dependency| self.waits_on(*dependency, key))
        {
            objections.extend(["wrong_state", "cycle"]);
        }
        let dead = |dependency: &JobKey| {
            self.known(*dependency).has_ended()
                && !self.known(*dependency).may_be(JobState::Succeeded)
        };
        if cmd.policy == FailurePolicy::Fail && dependencies.iter().any(dead) {
            objections.insert("wrong_state");
        }
        let must_refuse = !objections.is_empty();
        let Some(_) = self.changed(answer, &objections)? else {
            return Ok(());
        };
        if must_refuse && !dependencies.iter().any(dead) {
            let what = format!("dependencies were added, although: {objections:?}");
            return Err(self.broken("G7", key, what));
        }
        for dependency in dependencies {
            self.depends(key, dependency, cmd.policy);
        }
        Ok(())
    }

    pub(super) fn depends(&mut self, key: JobKey, dependency: JobKey, policy: FailurePolicy) {
        let has_it = |slot: &Slot| matches!(slot, Slot::Missing(key, _) | Slot::Delivered(key) if *key == dependency);
        if self.known(key).slots().any(has_it) {
            return;
        }
        let slot = self.slot_for(dependency, policy);
        self.note(key, "waits also for", dependency.0);
        self.goals.reach("dependency-added");
        self.jobs
            .get_mut(&dependency)
            .expect("found")
            .dependents
            .insert(key);
        if matches!(slot, Slot::Missing(..)) {
            self.known_mut(key).after.push(slot);
        }
    }

    pub(super) fn remove_dependencies(
        &mut self,
        cmd: &RemoveDependencies,
        answer: &Answer,
    ) -> CheckResult {
        let Some(key) = self.find(&cmd.namespace, &cmd.job) else {
            let objections = BTreeSet::from(["job_not_found"]);
            return self.changed(answer, &objections).map(|_| ());
        };
        let job = self.known(key);
        let is_named = |dependency: JobKey| match &cmd.on {
            None => true,
            Some(ids) => ids
                .iter()
                .any(|id| self.find(&cmd.namespace, id) == Some(dependency)),
        };
        let mut objections = BTreeSet::new();
        if job.state() != Some(JobState::Blocked) {
            objections.extend(["wrong_state", "job_not_found"]);
        }
        let carries = |slot: &Slot| matches!(slot, Slot::Missing(up, _) if is_named(*up));
        if job.inputs.iter().any(carries) {
            objections.insert("dependency_carries_data");
        }
        let must_refuse = !objections.is_empty();
        let removed: Vec<bool> = job.after.iter().map(carries).collect();
        let Some(_) = self.changed(answer, &objections)? else {
            return Ok(());
        };
        if must_refuse {
            let what = format!("dependencies were removed, although: {objections:?}");
            return Err(self.broken("G1", key, what));
        }
        self.note(key, "waits for fewer", 0);
        self.goals.reach("dependency-removed");
        let mut removed = removed.into_iter();
        self.known_mut(key)
            .after
            .retain(|_| !removed.next().unwrap_or(false));
        self.unblock_if_met(key);
        Ok(())
    }
}
