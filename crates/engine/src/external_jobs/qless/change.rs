//! Cancellation, deletion and retries of jobs of qless by commands of the engine.

use ganger_types::{JobId, JobState, Namespace, Queue, Rejection};

use crate::engine::Engine;
use crate::external::{ExternalSystem as _, wrong_state};
use crate::turn::Turn;

impl Engine {
    /// Cancels those of the jobs that belong to qless, by its own rules: a complete job stays, and so does a job with
    /// a dependent that is not named too. Returns the number of cancelled jobs, and the ids of the others.
    pub(crate) fn cancel_external(
        &mut self,
        namespace: &Namespace,
        ids: Vec<JobId>,
        turn: &mut Turn<'_>,
    ) -> (u64, Vec<JobId>) {
        let is_of_qless = |id: &JobId| {
            turn.known.find(namespace, id).is_none() && self.external.qless.has_job(namespace, id)
        };
        let named = ids.iter().filter(|id| is_of_qless(id)).cloned().collect();
        let gone = self
            .external
            .qless
            .cancel(turn.now, namespace, named, turn.out);
        let left = ids.into_iter().filter(|id| !gone.contains(id));
        (
            u64::try_from(gone.len()).unwrap_or(u64::MAX),
            left.collect(),
        )
    }

    /// The rejection of the deletion of an external job that its own system keeps.
    pub(crate) fn refuse_delete_external(&self, namespace: &Namespace, id: &JobId) -> Rejection {
        let Some(state) = self.external.qless.state(namespace, id) else {
            return self.not_ours(namespace, id);
        };
        let needed = if state == JobState::Succeeded {
            "qless removes no job that is complete before its time (jobs-history, jobs-history-count)"
        } else {
            "jobs of qless wait for it: name them too, or delete them first"
        };
        wrong_state(id, state, needed)
    }

    /// Puts an ended external job into a queue again. Returns false if the job has not ended or its system refuses;
    /// items of raw keys never end.
    pub(crate) fn retry_external(
        &mut self,
        namespace: &Namespace,
        id: &JobId,
        queue: Option<&Queue>,
        turn: &mut Turn<'_>,
    ) -> bool {
        let qless = &mut self.external.qless;
        qless.retry_jobs(turn.now, namespace, id, queue, turn.out)
    }
}
