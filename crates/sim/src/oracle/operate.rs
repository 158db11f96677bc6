//! Judges what operators do: cancel, retry, delete, alter, dependencies, settings, deregistrations.

use std::collections::BTreeSet;

use ganger_types::command::{
    AddDependencies, Alter, Cancel, ConfigureNamespace, ConfigureQueue, Delete, DeregisterWorker,
    ForgetQueue, QueueChange, RemoveDependencies, Retry, Selection, Start, TimeOut,
};
use ganger_types::{
    Answer, FailurePolicy, JobId, JobKey, JobState, Namespace, Queue, Reply, limits,
};

use super::admission::due_of;
use super::job::{DueTime, Gone, PossibleState, Slot};
use super::{CheckResult, Oracle, Violation};

impl Oracle {
    /// The count and the skipped ids of an accepted bulk command; `None` if it was rightly refused.
    fn changed(
        &self,
        answer: &Answer,
        objections: &BTreeSet<&'static str>,
    ) -> Result<Option<(u64, BTreeSet<JobId>)>, Violation> {
        match answer {
            Err(rejection) => self.refused(rejection, objections).map(|()| None),
            Ok(Reply::Changed { count, skipped } | Reply::Retried { count, skipped, .. }) => {
                Ok(Some((*count, skipped.iter().cloned().collect())))
            }
            Ok(other) => Err(self.wrong("P6", format!("answered {other:?}"), Vec::new())),
        }
    }

    /// Objections to naming jobs that are not there.
    fn not_there(&self, namespace: &Namespace, ids: &[JobId]) -> BTreeSet<&'static str> {
        let missing = ids.iter().any(|id| self.find(namespace, id).is_none());
        if missing {
            BTreeSet::from(["job_not_found"])
        } else {
            BTreeSet::new()
        }
    }

    pub(super) fn cancel(&mut self, cmd: &Cancel, answer: &Answer) -> CheckResult {
        let Some((_, skipped)) = self.changed(answer, &BTreeSet::new())? else {
            return Ok(());
        };
        let keys: Vec<JobKey> = match &cmd.jobs {
            Selection::Jobs(ids) => ids
                .iter()
                .filter_map(|id| self.find(&cmd.namespace, id))
                .collect(),
            Selection::Graph(graph) => self
                .live
                .iter()
                .copied()
                .filter(|key| {
                    let job = self.known(*key);
                    job.namespace == cmd.namespace && job.graph.as_ref() == Some(graph)
                })
                .collect(),
        };
        let told: Vec<JobId> = keys.iter().map(|key| self.known(*key).id.clone()).collect();
        for (key, id) in keys.iter().zip(told) {
            let was_live = self.live.contains(key) && !self.known(*key).may_have_ended();
            if was_live && skipped.contains(&id) {
                let what = format!("job {id} could be cancelled and was skipped");
                return Err(self.broken("G9", *key, what));
            }
        }
        let keys: Vec<JobKey> = keys
            .into_iter()
            .filter(|key| self.live.contains(key) && !self.known(*key).has_ended())
            .collect();
        for key in &keys {
            let key = *key;
            if self.known(key).may_be(JobState::Running) {
                self.goals.reach("cancelled-while-running");
            }
            self.note(key, "was cancelled", 0);
            // All that were named are cancelled; only then do the others follow.
            let job = self.known_mut(key);
            job.end_hold(Gone::Cancelled);
            job.moves_to(JobState::Cancelled);
        }
        self.have_ended(&keys);
        Ok(())
    }

    pub(super) fn time_out(&mut self, cmd: &TimeOut, answer: &Answer) -> CheckResult {
        let keys: Vec<JobKey> = cmd
            .jobs
            .iter()
            .filter_map(|id| self.find(&cmd.namespace, id))
            .collect();
        let mut objections = self.not_there(&cmd.namespace, &cmd.jobs);
        for key in &keys {
            let job = self.known(*key);
            if job.state() != Some(JobState::Running) {
                objections.insert("wrong_state");
            }
            if job.has_ended() {
                objections.insert("job_not_found");
            }
        }
        if self.changed(answer, &objections)?.is_none() {
            return Ok(());
        }
        let keys: BTreeSet<JobKey> = keys.into_iter().collect();
        let now = self.now.elapsed;
        for key in &keys {
            self.note(*key, "was timed out by hand", 0);
            self.goals.reach("timed-out-by-hand");
            let at_once = Some(std::time::Duration::ZERO);
            let stands = self.stands_after(*key, |stand| {
                let after = self.after_failure(*key, now, stand, true, at_once);
                let somewhere = |stand| PossibleState {
                    ready_at: None,
                    ..stand
                };
                after.into_iter().map(somewhere).collect()
            });
            self.known_mut(*key).end_hold(Gone::ByHand);
            self.stands_are(*key, stands);
        }
        // All that were named are taken from their workers; only then do the others follow.
        let has_ended = |key: &JobKey| self.known(*key).has_ended();
        let ended: Vec<JobKey> = keys.into_iter().filter(has_ended).collect();
        self.have_ended(&ended);
        Ok(())
    }

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

    /// The jobs that came back with those that were named. They had ended, and are related to them; and who
    /// fell with one that was named comes back, unless it would fail again at once.
    fn followers(
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
                .fell_with
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

    /// A live job that holds the result of this one as an input.
    pub(super) fn user_of(&self, key: JobKey) -> Option<JobKey> {
        self.users_of(key).next()
    }

    pub(super) fn users_of(&self, key: JobKey) -> impl Iterator<Item = JobKey> {
        let takes = move |slot: &Slot| *slot == Slot::Delivered(key);
        self.known(key)
            .dependents
            .iter()
            .copied()
            .filter(move |dependent| {
                self.live.contains(dependent) && self.known(*dependent).inputs.iter().any(takes)
            })
    }

    fn comes_back(&mut self, key: JobKey, queue: Option<&Queue>) {
        self.note(key, "was retried", 0);
        self.goals.reach("retried");
        self.live.insert(key);
        let wall = self.now.wall;
        let job = self.known_mut(key);
        job.result = None;
        job.start = None;
        job.is_retried = true;
        job.fell_with = None;
        if let Some(queue) = queue {
            job.queue = queue.clone();
        }
        job.spec.deadline = job.spec.deadline.filter(|deadline| *deadline > wall);
        job.becomes(vec![PossibleState::new(JobState::Blocked)]);
    }

    fn settle_retried(&mut self, key: JobKey) {
        let slots: Vec<Slot> = self.known(key).slots().cloned().collect();
        let renewed: Vec<Slot> = slots
            .into_iter()
            .map(|slot| match slot {
                // One that was removed since has not succeeded before it was: else it would be in use.
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

    /// How the submission said that this job treats a failure of `dependency`.
    fn edge_policy(&self, key: JobKey, dependency: JobKey) -> FailurePolicy {
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

    pub(super) fn delete(&mut self, cmd: &Delete, answer: &Answer) -> CheckResult {
        let objections = self.not_there(&cmd.namespace, &cmd.jobs);
        let Some((_, skipped)) = self.changed(answer, &objections)? else {
            return Ok(());
        };
        let mut live = Vec::new();
        let mut named = BTreeSet::new();
        for id in &cmd.jobs {
            let Some(key) = self.find(&cmd.namespace, id) else {
                continue;
            };
            let is_live = self.live.contains(&key) && !self.known(key).has_ended();
            if !skipped.contains(id) {
                named.insert(key);
                live.extend(is_live.then_some(key));
            } else if is_live && !self.known(key).may_have_ended() {
                // What is named is what is deleted (`rel K5`), whatever else is named before it.
                let what = format!("live job {id} was to be deleted and was skipped");
                return Err(self.broken("K5", key, what));
            }
        }
        for key in &live {
            self.goals.reach("deleted-while-live");
            let job = self.known_mut(*key);
            job.end_hold(Gone::Removed);
            job.moves_to(JobState::Cancelled);
        }
        self.have_ended(&live);
        self.wait_in_vain(&live);
        for key in named {
            if let Some(user) = self.user_of(key) {
                let what = format!("job {key} was deleted while job {user} holds its result");
                return Err(self.broken("K2", key, what));
            }
            self.remove(key);
        }
        Ok(())
    }

    /// Who still waits for jobs that will never be retried fails.
    fn wait_in_vain(&mut self, gone: &[JobKey]) {
        let dependents = gone.iter().flat_map(|key| &self.known(*key).dependents);
        let waiting: BTreeSet<JobKey> = dependents
            .copied()
            .filter(|dependent| {
                let waits = || self.known(*dependent).missing();
                self.live.contains(dependent) && waits().iter().any(|key| gone.contains(key))
            })
            .collect();
        for key in &waiting {
            self.goals.reach("waited-for-a-deleted-job");
            self.note(*key, "waited for a job that was deleted", 0);
            self.known_mut(*key).moves_to(JobState::Failed);
        }
        self.have_ended(&waiting.into_iter().collect::<Vec<_>>());
    }

    /// Forgets a job that was removed for good.
    pub(super) fn remove(&mut self, key: JobKey) {
        let Some(job) = self.jobs.remove(&key) else {
            return;
        };
        self.live.remove(&key);
        self.ids.remove(&(job.namespace, job.id));
        self.removed.insert(key);
        self.touched.insert(key);
    }

    pub(super) fn alter(&mut self, cmd: &Alter, answer: &Answer) -> CheckResult {
        let Some(id) = &cmd.job else {
            return match answer {
                Err(_) => Ok(()),
                Ok(_) => {
                    Err(self.wrong("P6", "a job without a name was altered".into(), Vec::new()))
                }
            };
        };
        let Some(key) = self.find(&cmd.namespace, id) else {
            let objections = BTreeSet::from(["job_not_found"]);
            return self.changed(answer, &objections).map(|_| ());
        };
        let mut objections = BTreeSet::new();
        let moves = cmd.queue.is_some() || cmd.start.is_some() || cmd.payload.is_some();
        let state = self.known(key).state();
        if moves || cmd.priority.is_some() {
            objections.insert("wrong_state");
        }
        if self.known(key).tags.len() + cmd.tags_added.len() > limits::TAGS_MAX {
            objections.insert("too_large");
        }
        let (tags, told) = match answer {
            Err(rejection) => return self.refused(rejection, &objections),
            Ok(Reply::Altered { tags, state }) => (tags.clone(), *state),
            Ok(other) => return Err(self.wrong("P6", format!("answered {other:?}"), Vec::new())),
        };
        let must_not_move = matches!(state, Some(JobState::Running)) || self.known(key).has_ended();
        if moves && must_not_move {
            return Err(self.broken("A2", key, format!("altered while {state:?}: {cmd:?}")));
        }
        self.note(key, "was altered", 0);
        self.altered(key, cmd);
        let job = self.known(key);
        if tags.into_iter().collect::<BTreeSet<_>>() != job.tags || !job.may_be(told) {
            return Err(self.broken(
                "P6",
                key,
                format!("altered to {:?}, told as {told}", job.tags),
            ));
        }
        Ok(())
    }

    fn altered(&mut self, key: JobKey, cmd: &Alter) {
        let now = self.now;
        let job = self.known_mut(key);
        if let Some(priority) = cmd.priority {
            job.priority = priority;
        }
        if let Some(queue) = &cmd.queue {
            job.queue = queue.clone();
        }
        if let Some(payload) = &cmd.payload {
            job.payload = payload.clone();
        }
        job.tags.extend(cmd.tags_added.iter().cloned());
        job.tags.retain(|tag| !cmd.tags_removed.contains(tag));
        let Some(start) = cmd.start else { return };
        let due = due_of(start, now);
        if job.state() == Some(JobState::Blocked) {
            job.start = due;
            return;
        }
        for stand in &mut job.may {
            *stand = match (due, start) {
                (Some(due), _) => stand.scheduled(DueTime::At(due)),
                (None, Start::Now | Start::At(_) | Start::After(_)) => stand.moved(JobState::Ready),
            };
        }
    }

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

    fn depends(&mut self, key: JobKey, dependency: JobKey, policy: FailurePolicy) {
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

    pub(super) fn configure_queue(&mut self, cmd: &ConfigureQueue, answer: &Answer) -> CheckResult {
        if let Err(rejection) = answer {
            return self.refused(rejection, &BTreeSet::from(["out_of_range"]));
        }
        let name = (cmd.namespace.clone(), cmd.queue.clone());
        let settings = self.queues.entry(name).or_default();
        match &cmd.change {
            QueueChange::All(all) => *settings = all.clone(),
            QueueChange::Paused(paused) => settings.paused = *paused,
        }
        Ok(())
    }

    pub(super) fn forget_queue(&mut self, cmd: &ForgetQueue, answer: &Answer) -> CheckResult {
        let live = self.count_live(|job| job.namespace == cmd.namespace && job.queue == cmd.queue);
        let mut objections = BTreeSet::from(["queue_not_found"]);
        if live > 0 {
            objections.insert("queue_in_use");
        }
        if let Err(rejection) = answer {
            return self.refused(rejection, &objections);
        }
        if live > 0 {
            return Err(self.wrong(
                "K4",
                format!("a queue with {live} live jobs was forgotten"),
                Vec::new(),
            ));
        }
        let has_kept = self
            .jobs
            .values()
            .any(|job| job.namespace == cmd.namespace && job.queue == cmd.queue);
        if !has_kept {
            self.queues
                .remove(&(cmd.namespace.clone(), cmd.queue.clone()));
        }
        Ok(())
    }

    pub(super) fn configure_namespace(
        &mut self,
        cmd: &ConfigureNamespace,
        answer: &Answer,
    ) -> CheckResult {
        if let Err(rejection) = answer {
            return self.refused(rejection, &BTreeSet::from(["out_of_range", "too_large"]));
        }
        self.namespaces
            .insert(cmd.namespace.clone(), cmd.settings.clone());
        Ok(())
    }

    pub(super) fn deregister(&mut self, cmd: &DeregisterWorker, answer: &Answer) -> CheckResult {
        let Some(_) = self.changed(answer, &BTreeSet::new())? else {
            return Ok(());
        };
        let held: Vec<JobKey> = self
            .live
            .iter()
            .copied()
            .filter(|key| {
                let job = self.known(*key);
                job.namespace == cmd.namespace
                    && job
                        .hold
                        .as_ref()
                        .is_some_and(|hold| hold.worker == cmd.worker)
            })
            .collect();
        for key in held {
            self.note(key, "its worker deregistered", 0);
            self.goals.reach("deregistered-with-leases");
            let place = self.known(key).hold.as_ref().and_then(|hold| hold.place);
            let stands = self.stands_after(key, |stand| {
                let free = stand.releases < limits::RELEASES_MAX;
                let counted = stand.counted - u32::from(free);
                let stand = PossibleState {
                    counted,
                    releases: stand.releases + 1,
                    ..stand
                };
                vec![PossibleState {
                    ready_at: place,
                    ..stand.moved(JobState::Ready)
                }]
            });
            self.known_mut(key).end_hold(Gone::ByHand);
            self.stands_become(key, stands);
        }
        Ok(())
    }
}
