//! Leases of jobs of qless, if a queue has fewer jobs of the engine than the worker asks for.
//!
//! A lease is a pop of qless at the server's time, with a token in the row of the job. No timer acts on the lease:
//! the next pop by any client handles an expired lock.

use ganger_qless::LeaseOptions;
use ganger_types::command::Lease;
use ganger_types::{Bytes, Grant, JobId, Now, RequestId, Worker};

use crate::engine::Engine;
use crate::external::seconds;
use crate::state::SpaceIndex;
use crate::turn::Turn;

impl Engine {
    /// Leases up to `limit` jobs of qless from the queues of a request, in their order. The pause and the limit of
    /// running jobs of a queue apply to them too.
    pub(crate) fn lease_external(
        &mut self,
        space: SpaceIndex,
        worker: &Worker,
        cmd: &Lease,
        jobs_max: usize,
        turn: &mut Turn<'_>,
    ) -> Vec<Grant> {
        let mut grants = Vec::new();
        if !self.external.qless.is_used(&cmd.namespace) {
            return grants;
        }
        for take in &cmd.queues {
            let ours = self.spaces[space].queues.get(&take.queue);
            let ours = ours.map(|index| &self.queues[*index]);
            let slots = ours.map_or(u64::MAX, crate::state::QueueState::slots);
            let most = usize::try_from(slots).unwrap_or(usize::MAX);
            let lease_for = cmd
                .lease_for
                .or(ours.and_then(|queue| queue.settings.lease_for))
                .unwrap_or(self.spaces[space].settings.lease_for);
            let options = LeaseOptions {
                queue: Bytes::copy_from_slice(take.queue.as_bytes()),
                worker: Bytes::copy_from_slice(worker.as_bytes()),
                count: most.min(jobs_max - grants.len()),
                seconds: lease_for.as_secs_f64(),
                request: cmd.request.clone(),
            };
            if options.count > 0 {
                grants.extend(self.lend(cmd, &options, turn));
            }
        }
        grants
    }

    fn lend(&mut self, cmd: &Lease, options: &LeaseOptions, turn: &mut Turn<'_>) -> Vec<Grant> {
        let mut spaces = std::mem::take(&mut self.external.qless);
        let handed = spaces.change(&cmd.namespace, turn.out, |qless, messages| {
            let mut draw = || self.random.token();
            qless.lease_jobs(
                turn.now.elapsed,
                seconds(turn.now.wall),
                options,
                &mut draw,
                messages,
            )
        });
        self.external.qless = spaces;
        // A configuration option of qless that is not a number stops its own workers too.
        let handed = handed.unwrap_or_default();
        let mut grants = Vec::new();
        for jid in handed {
            match JobId::new(&jid)
                .ok()
                .and_then(|id| self.external.qless.grant(turn.now, cmd, &id))
            {
                Some(grant) => grants.push(grant),
                // The job's jid or queue name is too long: only workers of qless can run it.
                None => {
                    self.external.qless.put_back(
                        turn.now,
                        &cmd.namespace,
                        &options.queue,
                        &jid,
                        turn.out,
                    );
                }
            }
        }
        grants
    }

    /// The live grants of jobs of qless of an earlier request with the same id.
    pub(crate) fn repeated_external_leases(
        &self,
        now: Now,
        worker: &Worker,
        request: &RequestId,
        cmd: &Lease,
    ) -> Vec<Grant> {
        let jids = self.external.qless.space(&cmd.namespace);
        let jids = jids.map(|qless| qless.leased_to_request(worker.as_bytes(), request));
        let ids = jids.unwrap_or_default().into_iter();
        ids.filter_map(|jid| self.external.qless.grant(now, cmd, &JobId::new(jid).ok()?))
            .collect()
    }

    /// The payload of a job of qless that was handed out.
    pub fn external_payload(&self, grant: &Grant) -> Option<Bytes> {
        let qless = self.external.qless.space(&grant.namespace)?;
        let job = qless.job_by_id(grant.job.as_bytes())?;
        Some(job.data.clone())
    }
}
