//! Extends a lease, and can report progress or replace the payload.

use crate::check::{check_size, cut};
use std::time::Duration;

use ganger_types::command::Renew;
use ganger_types::limits::PROGRESS_MESSAGE_BYTES_MAX;
use ganger_types::{Answer, Change, Elapsed, Happening, JobKey, Rejection, Reply};

use super::lease::check_lease_for;
use crate::engine::Engine;
use crate::turn::Turn;

impl Engine {
    pub(crate) fn renew(&mut self, cmd: Renew, turn: &mut Turn<'_>) -> Answer {
        let is_external_lease = self.is_external_lease(&cmd.held, turn.known);
        let key = if is_external_lease {
            None
        } else {
            let live = self.live_lease(&cmd.held);
            Some(live.ok_or_else(|| self.lease_lost(&cmd.held, turn.known))?)
        };
        check_lease_for(cmd.lease_for)?;
        let limit = self.settings(&cmd.held.namespace).payload_bytes_max;
        check_size(
            "the size of a payload in bytes",
            cmd.payload.as_ref(),
            limit,
        )?;
        if cmd
            .progress
            .as_ref()
            .is_some_and(|progress| progress.millionths > 1_000_000)
        {
            return Err(Rejection::OutOfRange {
                what: "progress",
                expected: "between 0 and 1",
            });
        }

        let Some(key) = key else {
            return self.renew_external(cmd, turn);
        };
        let lease_for = self.extend(key, cmd.lease_for, turn);
        let space = self.space_of_job(key);
        let worker = self.job(key).lease().expect("just extended").worker.clone();
        self.record_worker(space, &worker, turn);
        if let Some(mut progress) = cmd.progress {
            cut(&mut progress.message, PROGRESS_MESSAGE_BYTES_MAX);
            let job = self.job_mut(key);
            job.details_mut().progress = Some(progress.clone());
            let id = job.id();
            self.put(key, turn);
            self.announce(
                space,
                turn.now.wall,
                Happening::JobProgressed {
                    key,
                    job: id,
                    progress,
                },
                turn,
            );
        }
        if let Some(payload) = cmd.payload {
            self.job_mut(key).payload_bytes =
                u32::try_from(payload.len()).expect("payloads were checked");
            self.put(key, turn);
            turn.out.changes.push(Change::PutPayload { key, payload });
        }
        Ok(Reply::Renewed { lease_for })
    }

    /// Extends a live lease and never shortens it (`rel L9`). On the server's clock a row is written only if the
    /// lease gets longer than any grant or renewal before, because a restart gives every lease its full length again.
    /// On callers' clocks each renewal is written.
    fn extend(
        &mut self,
        key: JobKey,
        lease_for: Option<Duration>,
        turn: &mut Turn<'_>,
    ) -> Duration {
        let mut left = Duration::ZERO;
        let mut longer = None;
        let space = self.space_of_job(key);
        let is_kept = self.spaces[space].runs_on_callers_clock();
        self.reindex(key, |job| {
            let lease = job
                .details_mut()
                .lease
                .as_mut()
                .expect("the lease was judged live");
            let end = lease.timeout_at.unwrap_or(Elapsed(u64::MAX));
            let wanted = lease_for.unwrap_or(lease.lease_for);
            let before = lease.expires_at;
            lease.expires_at = before.max(turn.now.elapsed.after(wanted).min(end));
            left = lease.expires_at.since(turn.now.elapsed);
            if wanted > lease.lease_for || (is_kept && lease.expires_at > before) {
                lease.lease_for = lease.lease_for.max(wanted);
                longer = Some(lease.clone());
            }
        });
        turn.out.changes.extend(longer.map(Change::PutLease));
        left
    }
}
