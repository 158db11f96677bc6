//! Cancelling jobs of qless by a command of ours.

use std::collections::BTreeSet;

use ganger_qless::Qless;
use ganger_types::qless::{Generation, QlessRequest, QlessState};
use ganger_types::{Bytes, JobId, JobState, Namespace, Now, Rejection};

use super::{QlessSpaces, seconds};
use crate::Effects;
use crate::engine::Engine;
use crate::external::{ExternalSystem as _, wrong_state};
use crate::turn::Turn;

impl QlessSpaces {
    /// Cancels those of these jobs that the script would cancel in one call, as of the server's time; gives them back.
    pub(in crate::external) fn cancel(
        &mut self,
        now: Now,
        namespace: &Namespace,
        mut ids: BTreeSet<JobId>,
        out: &mut Effects,
    ) -> BTreeSet<JobId> {
        let Some(qless) = self.space(namespace) else {
            return BTreeSet::new();
        };
        while let Some(other) = ids.iter().find(|id| !may_go(qless, id, &ids)).cloned() {
            ids.remove(&other);
        }
        if ids.is_empty() {
            return ids;
        }
        let mut words = vec![
            Bytes::from_static(b"cancel"),
            Bytes::from(seconds(now.wall).to_string()),
        ];
        words.extend(ids.iter().map(|id| Bytes::copy_from_slice(id.as_bytes())));
        let request = QlessRequest::Script {
            generation: Generation::Two,
            words,
        };
        let answer = self.change(namespace, out, |qless, messages| {
            qless.call(now.elapsed, request, messages)
        });
        // Whatever the script refuses after all has changed nothing.
        answer.map_or(BTreeSet::new(), |_| ids)
    }
}

impl Engine {
    /// Cancels those that are jobs of qless, by its own rules: one that is complete stays, and so does one for which a
    /// job waits that is not named too. Returns the number of cancelled jobs, and the ids of the others.
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

    /// The refusal of a deletion that names a job which its own system keeps.
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
}

/// Whether a job can be cancelled together with `ids`: it is not complete, and all that wait for it are cancelled too.
fn may_go(qless: &Qless, id: &JobId, ids: &BTreeSet<JobId>) -> bool {
    let Some(job) = qless.job_by_id(id.as_bytes()) else {
        return false;
    };
    let goes = |jid: &Bytes| JobId::new(jid).is_ok_and(|id| ids.contains(&id));
    job.state != QlessState::Complete && job.dependents.iter().all(goes)
}
