//! Putting ended jobs of qless back in line by a command of ours.

use ganger_qless::list_of;
use ganger_types::qless::{Generation, QlessRequest};
use ganger_types::{Bytes, JobId, Namespace, Now, Queue};

use super::{QlessSpaces, as_job, seconds};
use crate::Effects;

/// Who puts, as messages and histories of qless tell it.
const WE: &[u8] = b"ganger";

impl QlessSpaces {
    /// Puts a job that has failed or is complete into a queue again, its own if none is named, as `requeue` does at the
    /// server's time: with its data, priority, tags, retries and throttles. False if it has not ended, or the script
    /// refuses.
    pub(crate) fn retry_jobs(
        &mut self,
        now: Now,
        namespace: &Namespace,
        id: &JobId,
        queue: Option<&Queue>,
        out: &mut Effects,
    ) -> bool {
        let job = self
            .space(namespace)
            .and_then(|qless| qless.job_by_id(id.as_bytes()));
        let Some(job) = job.filter(|job| as_job::state(job).is_terminal()) else {
            return false;
        };
        let queue = queue.map_or_else(
            || as_job::queue(job),
            |queue| Bytes::copy_from_slice(queue.as_bytes()),
        );
        let words = vec![
            Bytes::from_static(b"requeue"),
            Bytes::from(seconds(now.wall).to_string()),
            Bytes::from_static(WE),
            queue,
            job.jid.clone(),
            job.klass.clone(),
            job.data.clone(),
            Bytes::from_static(b"0"),
            Bytes::from_static(b"throttles"),
            list_of(&job.throttles),
        ];
        let request = QlessRequest::Script {
            // The generations before know no throttles, and would leave that of the old queue on the job.
            generation: Generation::Three,
            words,
        };
        let answer = self.change(namespace, out, |qless, messages| {
            qless.call(now.elapsed, request, messages)
        });
        answer.is_ok()
    }
}
