//! Leases of jobs of qless to workers of the engine.

use std::time::Duration;

use ganger_qless::live_lease;
use ganger_types::command::Lease;
use ganger_types::{Bytes, Grant, JobId, Now};

use super::as_job::count;
use super::{QlessSpaces, seconds};
use crate::Effects;
use crate::external::ExternalSystem as _;

impl QlessSpaces {
    /// Whether qless was ever called in the namespace.
    pub(crate) fn is_used(&self, namespace: &ganger_types::Namespace) -> bool {
        self.spaces.contains_key(namespace)
    }

    pub(crate) fn grant(&self, now: Now, cmd: &Lease, id: &JobId) -> Option<Grant> {
        let job = self.space(&cmd.namespace)?.job_by_id(id.as_bytes())?;
        let lease = live_lease(job)?;
        let record = self.job(now, &cmd.namespace, id)?.record;
        let left = (job.expires - seconds(now.wall)).max(0.0);
        Some(Grant {
            key: record.key,
            job: record.id,
            namespace: record.namespace,
            queue: record.queue,
            kind: record.kind,
            attempt: record.attempt,
            retries_left: count(job.remaining),
            token: lease.token,
            lease_for: Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX),
            timeout: None,
            deadline: None,
            created_at: record.created_at,
            priority: record.priority,
            payload_bytes: u32::try_from(record.payload_bytes).unwrap_or(u32::MAX),
            inputs: 0,
            graph: None,
            tags: record.tags,
            labels: Vec::new(),
        })
    }

    /// Puts a job back that was just handed out. Wakes no worker, because the job would come here again.
    pub(crate) fn put_back(
        &mut self,
        now: Now,
        namespace: &ganger_types::Namespace,
        queue: &Bytes,
        jid: &Bytes,
        out: &mut Effects,
    ) {
        self.change(namespace, out, |qless, _| {
            qless.give_back(now.elapsed, seconds(now.wall), jid, 0.0);
        });
        self.woken.remove(&(namespace.clone(), queue.clone()));
    }
}
