//! What an ending means for others: dependents are met or fail, dependencies that nobody needs are cancelled.
//!
//! A cascade runs inside the command or timer that ended the first job, so all of it is one commit. It
//! works through lists instead of recursing: a graph may be as deep as it likes (`rel G4`, `G5`).
//!
//! What it comes to depends on the graph alone, not on the order of its jobs (`rel G6`): first everything
//! downstream of a failure fails, and only then are those cancelled that nobody alive needs any more. A
//! job that is both downstream of a failure and a dependency nobody needs has failed.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::history::AttemptEnd;
use ganger_types::{
    Change, FailurePolicy, Group, HistoryEntry, InputRow, InputState, JobId, JobKey, JobState, Now,
    Outcome, What,
};

use crate::engine::Engine;
use crate::state::{Edge, EndedJob};
use crate::transition::Move;
use crate::turn::Turn;

/// The failure group of jobs that failed because a dependency did.
pub(crate) const DEPENDENCY_GROUP: &str = "dependency";

/// How the reason ends for which a job is cancelled that no live job needs any more.
pub(crate) const NEEDLESS: &str = " needs it no more";

/// Dependencies that a cascade may leave without anybody who needs them.
#[derive(Default)]
struct UnneededCandidates {
    /// Those of which a job of their own graph ended without success, with the first such job.
    known: BTreeMap<JobKey, JobId>,
    /// Those of them whose dependents have changed since they were last looked at.
    to_look_at: BTreeSet<JobKey>,
}

impl Engine {
    /// Tells everyone concerned of the jobs that have ended, and of those that end because of it.
    pub(crate) fn spread_endings(&mut self, turn: &mut Turn<'_>) {
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

    /// Fails a job that is not running, with a line in its history.
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

    /// One dependency of a blocked job is met; with the last one it may go on.
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

    /// Writes the input that was met, from here or elsewhere.
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

    /// Sends a job whose dependencies are met on its way: to its time if it has one, else in line.
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

    /// A job that has ended needs its dependencies no more. If it did not succeed, those of its graph that
    /// nobody else waits for are to be cancelled.
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

    /// Whether a live job, here or elsewhere, waits for this one or uses its result.
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

    /// Writes the running attempt of a job into its history.
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
