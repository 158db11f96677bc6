//! The finished jobs that the engine needs before it can apply a command.
//!
//! The engine holds live jobs only and does no I/O. The host asks here which other jobs a command needs, reads them
//! from the store, and passes them as [`PrefetchedRows`].

use ganger_types::command::{Dependency, NewInput, NewJob, OperationStep, Selection};
use ganger_types::query::Query;
use ganger_types::{Command, ImportRecord, JobId, Namespace, OperationAction};

use crate::PrefetchedRows;
use crate::engine::Engine;

#[cfg(doc)]
use ganger_types::InputRow;

impl Engine {
    /// The ids in `command` of jobs that are not live: the host looks for them among the finished jobs.
    pub fn prefetch(&self, command: &Command) -> Vec<(Namespace, JobId)> {
        let mut wants = Vec::new();
        let mut want = |namespace: &Namespace, id: &JobId| {
            if self.find_job(namespace, id).is_none() {
                wants.push((namespace.clone(), id.clone()));
            }
        };
        match command {
            Command::Enqueue(cmd) => {
                self.prefetch_of_submission(&cmd.namespace, &cmd.jobs, &mut want);
            }
            Command::Prepare(part) => {
                self.prefetch_of_submission(&part.record.namespace, &part.jobs, &mut want);
            }
            Command::Decide(_) | Command::Receive(_) => self.prefetch_of_peers(command, &mut want),
            Command::Renew(cmd) => want(&cmd.held.namespace, &cmd.held.job),
            Command::Complete(cmd) => {
                want(&cmd.held.namespace, &cmd.held.job);
                for id in cmd.next.iter().flat_map(|next| &next.after) {
                    want(&cmd.held.namespace, id);
                }
            }
            Command::Fail(cmd) => want(&cmd.held.namespace, &cmd.held.job),
            Command::Release(cmd) => want(&cmd.held.namespace, &cmd.held.job),
            Command::AppendLog(cmd) => want(&cmd.held.namespace, &cmd.held.job),
            Command::Cancel(cmd) => {
                // An id that is not live only matters if it may be that of an external job, which a finished job of
                // the engine hides.
                if let Selection::Jobs(ids) = &cmd.jobs {
                    let external_jobs = ids
                        .iter()
                        .filter(|id| self.has_external_job(&cmd.namespace, id));
                    external_jobs.for_each(|id| want(&cmd.namespace, id));
                }
            }
            Command::Retry(cmd) => cmd.jobs.iter().for_each(|id| want(&cmd.namespace, id)),
            Command::Delete(cmd) => cmd.jobs.iter().for_each(|id| want(&cmd.namespace, id)),
            Command::WorkOperation(cmd) => {
                if let OperationStep::Page { jobs, .. } = &cmd.step {
                    for id in jobs {
                        want(&cmd.namespace, id);
                    }
                }
            }
            Command::Alter(cmd) => cmd.job.iter().for_each(|id| want(&cmd.namespace, id)),
            Command::AddDependencies(cmd) => {
                want(&cmd.namespace, &cmd.job);
                cmd.on.iter().for_each(|id| want(&cmd.namespace, id));
            }
            Command::Import(cmd) => {
                for record in &cmd.records {
                    if let ImportRecord::Job(source) = record {
                        source.job.id.iter().for_each(|id| want(&cmd.namespace, id));
                    }
                }
            }
            Command::Query(query) => match &**query {
                Query::Why(namespace, id) | Query::CancelEffects(namespace, id) => {
                    want(namespace, id);
                }
                Query::ExistingIds(namespace, ids) => {
                    for (id, _) in ids {
                        want(namespace, id);
                    }
                }
                _ => {}
            },
            _ => {}
        }
        wants
    }

    fn prefetch_of_submission(
        &self,
        namespace: &Namespace,
        jobs: &[NewJob],
        want: &mut impl FnMut(&Namespace, &JobId),
    ) {
        let space = self.find_space(namespace);
        for job in jobs {
            if let Some(id) = job.id.as_ref().filter(|id| id.parts().is_none()) {
                want(namespace, id);
            }
            let data = job.inputs.iter().filter_map(|input| match input {
                NewInput::Value(_) => None,
                NewInput::Result(edge) => Some(edge),
            });
            for edge in data.chain(&job.after) {
                if let Dependency::Job(id) = &edge.dependency {
                    want(namespace, id);
                }
            }
            let holder = space
                .zip(job.unique.as_ref())
                .and_then(|(space, unique)| self.spaces[space].unique.get(&unique.key));
            if let Some(holder) = holder {
                want(namespace, &holder.id);
            }
        }
    }

    /// Whether the host must also read the inputs of each finished job into [`PrefetchedRows::inputs`], and the
    /// finished dependencies in those inputs into [`PrefetchedRows::jobs`].
    pub fn prefetch_inputs(&self, command: &Command) -> bool {
        match command {
            Command::Retry(_) => true,
            Command::WorkOperation(cmd) => {
                let found = self.operation(&cmd.namespace, cmd.number);
                found.is_ok_and(|record| matches!(record.action, OperationAction::Retry { .. }))
            }
            Command::Receive(cmd) => self.prefetch_of_retries(cmd).is_some(),
            _ => false,
        }
    }
}

impl PrefetchedRows {
    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.inputs.is_empty() && self.parts.is_empty()
    }
}
