//! Makes a blocked job wait for more jobs, or for fewer.

use crate::check::at_most;
use ganger_types::command::{AddDependencies, RemoveDependencies};
use ganger_types::limits::INPUTS_MAX;
use ganger_types::{
    Answer, Change, FailurePolicy, InputRow, InputState, JobId, JobKey, JobState, Namespace,
    Outcome, Rejection, Reply,
};

use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::state::{Edge, RemoteEdge};
use crate::turn::Turn;

impl Engine {
    pub(crate) fn add_dependencies(
        &mut self,
        cmd: &AddDependencies,
        turn: &mut Turn<'_>,
    ) -> Answer {
        let key = self.blocked(&cmd.namespace, &cmd.job, turn.known)?;
        let dependencies = self.unmet(&cmd.namespace, &cmd.on, turn.known)?;
        let dependencies = refuse_endings(cmd.policy, dependencies, turn.known)?;
        self.refuse_cycles(key, &dependencies)?;
        let have = self.edges.of(key).count() + self.remote_edges(key).count() + dependencies.len();
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        at_most(
            "the number of inputs of a job",
            count(have),
            count(INPUTS_MAX),
        )?;

        let mut added = 0;
        for (dependency, id) in dependencies {
            if self
                .edges
                .of(key)
                .all(|(_, edge)| edge.dependency != dependency)
            {
                self.add_dependency(key, dependency, id, cmd.policy, turn);
                added += 1;
            }
        }
        Ok(Reply::Changed {
            count: added,
            skipped: Vec::new(),
        })
    }

    pub(crate) fn remove_dependencies(
        &mut self,
        cmd: &RemoveDependencies,
        turn: &mut Turn<'_>,
    ) -> Answer {
        let key = self.blocked(&cmd.namespace, &cmd.job, &FinishedIndex::default())?;
        let named = |engine: &Self, dependency: JobKey| match &cmd.on {
            None => true,
            Some(ids) => ids.iter().any(|id| {
                engine
                    .find_job(&cmd.namespace, id)
                    .or_else(|| id.parts().map(|(key, _)| key))
                    == Some(dependency)
            }),
        };
        let edges: Vec<(u32, Edge)> = self
            .edges
            .of(key)
            .filter(|(_, edge)| !edge.is_delivered && named(self, edge.dependency))
            .collect();
        if let Some((_, edge)) = edges.iter().find(|(slot, _)| *slot < InputRow::EDGE_FIRST) {
            let dependency = match self.jobs.get(edge.dependency) {
                Some(job) => job.id(),
                None => JobId::made(edge.dependency, ganger_types::IdTag(0)),
            };
            return Err(Rejection::DependencyCarriesData {
                job: cmd.job.clone(),
                dependency,
            });
        }
        let takes_all = cmd.on.is_none();
        let with_data = |(slot, _): &(u32, &RemoteEdge)| *slot < InputRow::EDGE_FIRST;
        if let Some((_, edge)) = self.remote_edges(key).find(with_data).filter(|_| takes_all) {
            return Err(Rejection::DependencyCarriesData {
                job: cmd.job.clone(),
                dependency: edge.dependency.id.clone(),
            });
        }

        let elsewhere = if takes_all {
            self.drop_remote_dependencies(key, turn)
        } else {
            0
        };
        let count = u32::try_from(edges.len()).expect("edges are limited") + elsewhere;
        for (slot, _) in edges {
            self.edges.remove(key, slot);
            turn.out
                .changes
                .push(Change::RemoveInput { job: key, slot });
        }
        let details = self.job_mut(key).details_mut();
        details.missing -= count;
        if details.missing == 0 {
            self.unblock(key, turn);
        }
        Ok(Reply::Changed {
            count: u64::from(count),
            skipped: Vec::new(),
        })
    }

    fn blocked(
        &self,
        namespace: &Namespace,
        id: &JobId,
        known: &FinishedIndex,
    ) -> Result<JobKey, Rejection> {
        let needed = "only a blocked job's dependencies can be changed";
        let Some(key) = self.find_job(namespace, id) else {
            let record = known.find(namespace, id);
            let record = record.ok_or_else(|| self.not_ours(namespace, id))?;
            let ended = record
                .finished
                .as_ref()
                .map_or(record.state, |end| end.outcome.state());
            return Err(Rejection::WrongState {
                job: id.clone(),
                state: ended,
                needed,
            });
        };
        let state = self.job(key).state;
        if state != JobState::Blocked {
            return Err(Rejection::WrongState {
                job: id.clone(),
                state,
                needed,
            });
        }
        Ok(key)
    }

    /// The named jobs that have not succeeded. Unknown jobs are refused.
    pub(super) fn unmet(
        &self,
        namespace: &Namespace,
        ids: &[JobId],
        known: &FinishedIndex,
    ) -> Result<Vec<(JobKey, JobId)>, Rejection> {
        let mut unmet = Vec::new();
        for id in ids {
            if let Some(key) = self.find_job(namespace, id) {
                unmet.push((key, id.clone()));
                continue;
            }
            let record = known.find(namespace, id);
            let record = record.ok_or_else(|| self.not_ours(namespace, id))?;
            let outcome = record.finished.as_ref().map(|finished| finished.outcome);
            if outcome != Some(Outcome::Succeeded) {
                unmet.push((record.key, id.clone()));
            }
        }
        unmet.dedup();
        Ok(unmet)
    }

    /// Refuses a dependency on a job that waits, at any distance, for `key`, or is `key`.
    pub(super) fn refuse_cycles(
        &self,
        key: JobKey,
        dependencies: &[(JobKey, JobId)],
    ) -> Result<(), Rejection> {
        let Some((_, id)) = dependencies
            .iter()
            .find(|(dependency, _)| self.is_dependency_of(key, *dependency))
        else {
            return Ok(());
        };
        Err(Rejection::WrongState {
            job: id.clone(),
            state: JobState::Blocked,
            needed: "it waits for this job already, or is this job: they would wait for each other",
        })
    }

    /// Whether `other` waits for `key`, at any distance.
    fn is_dependency_of(&self, key: JobKey, other: JobKey) -> bool {
        let mut seen = std::collections::BTreeSet::from([other]);
        let mut open = vec![other];
        while let Some(job) = open.pop() {
            if job == key {
                return true;
            }
            open.extend(
                self.edges
                    .of(job)
                    .map(|(_, edge)| edge.dependency)
                    .filter(|up| seen.insert(*up)),
            );
        }
        false
    }

    /// Adds a dependency without data. The caller adjusts the job's state.
    pub(super) fn add_dependency(
        &mut self,
        key: JobKey,
        dependency: JobKey,
        id: JobId,
        policy: FailurePolicy,
        turn: &mut Turn<'_>,
    ) {
        let after = self.remote_edges(key).map(|(slot, _)| slot + 1).max();
        let slot = self
            .edges
            .free_slot(key, InputRow::EDGE_FIRST)
            .max(after.unwrap_or(0));
        self.edges.add(
            key,
            slot,
            Edge {
                dependency,
                policy,
                is_delivered: false,
            },
        );
        self.job_mut(key).details_mut().missing += 1;
        let state = InputState::Missing {
            dependency,
            id,
            policy,
        };
        turn.out.changes.push(Change::PutInput(InputRow {
            job: key,
            slot,
            state,
        }));
    }
}

/// Handles dependencies that have ended without success: they meet an edge that ignores failures, an edge that waits
/// for a retry is kept, and an edge that would fail the job is refused.
fn refuse_endings(
    policy: FailurePolicy,
    mut dependencies: Vec<(JobKey, JobId)>,
    known: &FinishedIndex,
) -> Result<Vec<(JobKey, JobId)>, Rejection> {
    match policy {
        FailurePolicy::Wait => Ok(dependencies),
        FailurePolicy::Ignore => {
            dependencies.retain(|(key, _)| known.by_key(*key).is_none());
            Ok(dependencies)
        }
        FailurePolicy::Fail => {
            let ended = dependencies
                .iter()
                .find_map(|(key, id)| Some((known.by_key(*key)?, id)));
            let Some((record, id)) = ended else {
                return Ok(dependencies);
            };
            let state = record
                .finished
                .as_ref()
                .map_or(record.state, |end| end.outcome.state());
            let needed =
                "it has ended without success: retry it first, or wait for that, or ignore it";
            Err(Rejection::WrongState {
                job: id.clone(),
                state,
                needed,
            })
        }
    }
}
