//! Consequences of the end of a job: dependents proceed or fail, and dependencies that no job needs are cancelled.
//!
//! A cascade runs inside the command or timer that ended the first job, so all of it is one commit. It uses lists
//! instead of recursion, so a graph may be of any depth (`rel G4`, `G5`).
//!
//! The outcome depends on the graph alone, not on the order of its jobs (`rel G6`): first all dependents of a failed
//! job fail, and only then are the jobs cancelled that no live job needs. A job that is both has failed.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::history::AttemptEnd;
use ganger_types::{
    Change, FailurePolicy, Group, HistoryEntry, InputRow, InputState, JobId, JobKey, JobState, Now,
    OperationNumber, Outcome, What,
};

use crate::engine::Engine;
use crate::state::{Edge, EndedJob};
use crate::transition::Move;
use crate::turn::Turn;

/// Failure group of jobs that failed because a dependency did.
pub(crate) const DEPENDENCY_GROUP: &str = "dependency";

/// End of the cancellation reason of a job that no live job needs any more.
pub(crate) const NEEDLESS: &str = " needs it no more";

/// Dependencies that no live job may need after a cascade.
#[derive(Default)]
struct UnneededCandidates {
    /// Dependencies of a job of the same graph that ended without success, with the first such job.
    known: BTreeMap<JobKey, JobId>,
    /// The candidates whose dependents have changed since they were last checked.
    to_look_at: BTreeSet<JobKey>,
}

impl Engine {
    /// Applies the consequences of all endings, including those that they cause.
    pub(crate) fn propagate_endings(&mut self, turn: &mut Turn<'_>) {
        let mut suspects = UnneededCandidates::default();
        loop {
            while let Some(ended) = self.ended.pop_front() {
                for (dependent, slot, policy) in self.edges.waiting_for(ended.key) {
                    if self.is_live(dependent) {
                        self.settle_dependent(dependent, slot, policy, &ended, turn);
                    }
                }
                self.notify_dependents_elsewhere(&ended, turn);
                self.drop_dependencies(&ended, &mut suspects);
                self.drop_dependencies_elsewhere(&ended, turn);
            }
            let Some(dependency) = suspects.to_look_at.pop_first() else {
                return;
            };
            if self.is_live(dependency) && !self.has_users(dependency) {
                if let Some((operation, _)) = self.cancellation_of(dependency) {
                    *self.operations.cascaded.entry(operation).or_default() += 1;
                }
                let reason = format!("job {}{NEEDLESS}", suspects.known[&dependency]);
                self.cancel_job(dependency, &reason, turn);
            }
        }
    }

    fn settle_dependent(
        &mut self,
        dependent: JobKey,
        slot: u32,
        policy: FailurePolicy,
        ended: &EndedJob,
        turn: &mut Turn<'_>,
    ) {
        if ended.outcome != Outcome::Succeeded
            && policy != FailurePolicy::Wait
            && self.cancel_with_graph(dependent, turn)
        {
            return;
        }
        match (ended.outcome, policy) {
            (Outcome::Succeeded, _) => {
                let (dependency, id) = (ended.key, ended.id.clone());
                let state = InputState::Delivered {
                    dependency,
                    id,
                    policy,
                };
                self.satisfy(dependent, slot, state, turn);
            }
            (_, FailurePolicy::Ignore) => {
                let state = InputState::Ignored {
                    id: ended.id.clone(),
                };
                self.satisfy(dependent, slot, state, turn);
            }
            (_, FailurePolicy::Fail) => {
                let message = format!("dependency {} {}", ended.id, ended.outcome.state());
                self.fail_unstarted(dependent, DEPENDENCY_GROUP, message, turn);
            }
            (_, FailurePolicy::Wait) => {}
        }
    }

    /// Cancels a member of a graph that a running operation cancels as a whole, so that the graph ends as if one command
    /// had cancelled it: no member fails or goes on because an earlier one was cancelled before it. Returns false for
    /// any other job.
    pub(crate) fn cancel_with_graph(&mut self, key: JobKey, turn: &mut Turn<'_>) -> bool {
        let Some((operation, reason)) = self.cancellation_of(key) else {
            return false;
        };
        *self.operations.cascaded.entry(operation).or_default() += 1;
        self.cancel_job(key, &reason, turn);
        true
    }

    /// The running operation that cancels the graph of a job as a whole, and its reason.
    fn cancellation_of(&self, key: JobKey) -> Option<(OperationNumber, String)> {
        if self.operations.cancels_no_graph() {
            return None;
        }
        let graph = self.job(key).graph()?;
        let namespace = &self.spaces[self.space_of_job(key)].name;
        let record = self.operations.cancelling(namespace, graph)?;
        Some((record.number, record.reason.clone()))
    }

    /// Applies the consequences of all endings as [`Self::propagate_endings`], and adds the jobs that were cancelled with
    /// their graphs to the progress of the operations.
    pub(crate) fn settle_endings(&mut self, turn: &mut Turn<'_>) {
        self.propagate_endings(turn);
        self.count_cascaded(turn);
    }

    /// Fails a job that is not running, with an entry in its history.
    pub(crate) fn fail_unstarted(
        &mut self,
        key: JobKey,
        group: &'static str,
        message: String,
        turn: &mut Turn<'_>,
    ) {
        let group = Group::from_static(group);
        self.append_history(
            key,
            HistoryEntry {
                at: turn.now.wall,
                what: What::Failed {
                    group: group.clone(),
                },
            },
        );
        self.fail_for_good(key, group, message, turn);
    }

    /// Meets a dependency of a blocked job; the last one unblocks it.
    pub(crate) fn satisfy(
        &mut self,
        dependent: JobKey,
        slot: u32,
        state: InputState,
        turn: &mut Turn<'_>,
    ) {
        match state {
            InputState::Delivered { .. } => self.edges.deliver(dependent, slot),
            _ => {
                self.edges.remove(dependent, slot);
            }
        }
        self.count_met(dependent, slot, state, turn);
    }

    /// Writes an input that was met by a job of this or another shard.
    pub(crate) fn count_met(
        &mut self,
        dependent: JobKey,
        slot: u32,
        state: InputState,
        turn: &mut Turn<'_>,
    ) {
        turn.out.changes.push(Change::PutInput(InputRow {
            job: dependent,
            slot,
            state,
        }));
        let details = self.job_mut(dependent).details_mut();
        details.missing -= 1;
        if details.missing == 0 {
            self.unblock(dependent, turn);
        }
    }

    /// Moves a job whose dependencies are met to `Scheduled` if its start time is in the future, else to `Ready`.
    pub(crate) fn unblock(&mut self, key: JobKey, turn: &mut Turn<'_>) {
        let due = self
            .job(key)
            .details
            .as_deref()
            .and_then(|details| details.due);
        let to = match due {
            Some(due) if !due.is_past(turn.now) => Move::Scheduled(due),
            _ => Move::Ready {
                at: turn.now.elapsed,
                is_ahead: false,
            },
        };
        self.transition(key, to, "", turn);
    }

    /// Removes the edges from an ended job to its dependencies. If the job did not succeed, dependencies in its graph
    /// become candidates for cancellation.
    fn drop_dependencies(&mut self, ended: &EndedJob, suspects: &mut UnneededCandidates) {
        let edges: Vec<(u32, Edge)> = self.edges.of(ended.key).collect();
        let is_suspicious = ended.outcome != Outcome::Succeeded && ended.graph.is_some();
        for (slot, edge) in edges {
            self.edges.remove(ended.key, slot);
            let dependency = edge.dependency;
            if !self.is_live(dependency) {
                continue;
            }
            if is_suspicious && self.job(dependency).graph() == ended.graph.as_ref() {
                let first = || ended.id.clone();
                suspects.known.entry(dependency).or_insert_with(first);
            }
            if suspects.known.contains_key(&dependency) {
                suspects.to_look_at.insert(dependency);
            }
        }
    }

    /// Whether a live job of this or another shard waits for this job or uses its result.
    pub(crate) fn has_users(&self, key: JobKey) -> bool {
        self.edges.user_of(key).is_some() || self.is_awaited_elsewhere(key)
    }

    /// Cancels a live job.
    pub(crate) fn cancel_job(&mut self, key: JobKey, reason: &str, turn: &mut Turn<'_>) {
        if self.job(key).state == JobState::Running {
            self.end_attempt(turn.now, key, AttemptEnd::Cancelled);
        }
        let what = What::Cancelled {
            reason: reason.to_owned(),
        };
        self.append_history(
            key,
            HistoryEntry {
                at: turn.now.wall,
                what,
            },
        );
        let to = Move::Finished {
            outcome: Outcome::Cancelled,
            result: None,
        };
        self.transition(key, to, reason, turn);
    }

    /// Appends the running attempt of a job to its history.
    pub(crate) fn end_attempt(&mut self, now: Now, key: JobKey, end: AttemptEnd) {
        let lease = self.job(key).lease().expect("a running job has a lease");
        let what = What::Attempt {
            number: lease.attempt,
            worker: lease.worker.clone(),
            leased_at: lease.granted_at,
            end,
        };
        self.append_history(key, HistoryEntry { at: now.wall, what });
    }
}
