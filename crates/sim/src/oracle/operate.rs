//! Checks commands of operators: cancel, retry, delete, alter, deregister.

use std::collections::BTreeSet;

use ganger_types::command::{Alter, Cancel, Delete, DeregisterWorker, Selection, Start, TimeOut};
use ganger_types::{Answer, JobId, JobKey, JobState, Namespace, Reply, limits};

use super::admission::due_of;
use super::job::{DueTime, PossibleState, Slot, TokenEnd};
use super::{CheckResult, Oracle, Violation};

impl Oracle {
    /// The count and the skipped ids of an accepted bulk command; `None` if it was rightly refused.
    pub(super) fn changed(
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

    /// Reasons to refuse a command that names missing jobs.
    pub(super) fn not_there(&self, namespace: &Namespace, ids: &[JobId]) -> BTreeSet<&'static str> {
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
            // Cancel all named jobs before the consequences are applied.
            let job = self.known_mut(key);
            job.end_hold(TokenEnd::Cancelled);
            job.moves_to(JobState::Cancelled);
        }
        self.apply_endings(&keys);
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
            self.known_mut(*key).end_hold(TokenEnd::ByHand);
            self.set_possible_states(*key, stands);
        }
        // End the attempts of all named jobs before the consequences are applied.
        let has_ended = |key: &JobKey| self.known(*key).has_ended();
        let ended: Vec<JobKey> = keys.into_iter().filter(has_ended).collect();
        self.apply_endings(&ended);
        Ok(())
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
                // All named jobs are deleted, in whatever order they are named (`rel K5`).
                let what = format!("live job {id} was to be deleted and was skipped");
                return Err(self.broken("K5", key, what));
            }
        }
        for key in &live {
            self.goals.reach("deleted-while-live");
            let job = self.known_mut(*key);
            job.end_hold(TokenEnd::Removed);
            job.moves_to(JobState::Cancelled);
        }
        self.apply_endings(&live);
        self.fail_those_waiting_for_retry(&live);
        for key in named {
            if let Some(user) = self.user_of(key) {
                let what = format!("job {key} was deleted while job {user} holds its result");
                return Err(self.broken("K2", key, what));
            }
            self.remove(key);
        }
        Ok(())
    }

    /// Fails the jobs that wait for the retry of removed jobs.
    pub(super) fn fail_those_waiting_for_retry(&mut self, gone: &[JobKey]) {
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
        self.apply_endings(&waiting.into_iter().collect::<Vec<_>>());
    }

    /// Removes a job from the model.
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

    pub(super) fn altered(&mut self, key: JobKey, cmd: &Alter) {
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
            self.known_mut(key).end_hold(TokenEnd::ByHand);
            self.set_states_with_consequences(key, stands);
        }
        Ok(())
    }
}
