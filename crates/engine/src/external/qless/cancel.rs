//! Cancellation of jobs of qless by a command of the engine.

use std::collections::BTreeSet;

use ganger_qless::Qless;
use ganger_types::qless::{Generation, QlessRequest, QlessState};
use ganger_types::{Bytes, JobId, Namespace, Now};

use super::{QlessSpaces, seconds};
use crate::Effects;

impl QlessSpaces {
    /// Cancels those of the jobs that the script would cancel in one call at the server's time, and returns them.
    pub(crate) fn cancel(
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
        // A call that the script refuses has changed nothing.
        answer.map_or(BTreeSet::new(), |_| ids)
    }
}

/// Whether a job can be cancelled together with `ids`: it is not complete, and all its dependents are among them.
fn may_go(qless: &Qless, id: &JobId, ids: &BTreeSet<JobId>) -> bool {
    let Some(job) = qless.job_by_id(id.as_bytes()) else {
        return false;
    };
    let goes = |jid: &Bytes| JobId::new(jid).is_ok_and(|id| ids.contains(&id));
    job.state != QlessState::Complete && job.dependents.iter().all(goes)
}
