//! Retries of ended jobs of qless by a command of the engine.

use ganger_qless::list_of;
use ganger_types::qless::{Generation, QlessRequest};
use ganger_types::{Bytes, JobId, Namespace, Now, Queue};

use super::{QlessSpaces, as_job, seconds};
use crate::Effects;

/// The worker that puts the job, in messages and histories of qless.
const WE: &[u8] = b"ganger";

impl QlessSpaces {
    /// Puts a failed or complete job into a queue again, or into its own if `queue` is `None`. Works as `requeue` at
    /// the server's time: data, priority, tags, retries and throttles stay. Returns false if the job has not ended or
    /// the script refuses.
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
            // Earlier generations have no throttles and would leave the old queue's throttle on the job.
            generation: Generation::Three,
            words,
        };
        let answer = self.change(namespace, out, |qless, messages| {
            qless.call(now.elapsed, request, messages)
        });
        answer.is_ok()
    }
}
