//! Extends a lease; tells progress; replaces the payload.

use ganger_types::command::Renew;
use ganger_types::limits::PROGRESS_MESSAGE_BYTES_MAX;
use ganger_types::{Answer, Change, Elapsed, Happening, Now, Rejection, Reply};

use super::complete::check_size;
use super::fail::cut;
use super::lease::check_lease_for;
use crate::engine::Engine;
use crate::{Effects, Known};

impl Engine {
    pub(crate) fn renew(
        &mut self,
        now: Now,
        cmd: Renew,
        known: &Known,
        out: &mut Effects,
    ) -> Answer {
        let key = self
            .live_lease(&cmd.held)
            .ok_or_else(|| self.lease_lost(&cmd.held, known))?;
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

        let lease_for = self.extend(now, key, cmd.lease_for);
        let space = self.space_of_job(key);
        let worker = self.job(key).lease().expect("just extended").worker.clone();
        self.see_worker(now, space, &worker, out);
        if let Some(mut progress) = cmd.progress {
            cut(&mut progress.message, PROGRESS_MESSAGE_BYTES_MAX);
            let job = self.job_mut(key);
            job.extra_mut().progress = Some(progress.clone());
            let id = job.id();
            self.put(key, out);
            self.announce(
                space,
                now.wall,
                Happening::JobProgressed {
                    key,
                    job: id,
                    progress,
                },
                out,
            );
        }
        if let Some(payload) = cmd.payload {
            self.job_mut(key).payload_bytes =
                u32::try_from(payload.len()).expect("payloads were checked");
            self.put(key, out);
            out.changes.push(Change::PutPayload { key, payload });
        }
        Ok(Reply::Renewed { lease_for })
    }

    /// Moves the end of a live lease away; never nearer (`rel L9`). Needs no row: a restart gives every
    /// lease its full length again.
    fn extend(
        &mut self,
        now: Now,
        key: ganger_types::JobKey,
        lease_for: Option<std::time::Duration>,
    ) -> std::time::Duration {
        let mut left = std::time::Duration::ZERO;
        self.reindex(key, |job| {
            let lease = job
                .extra_mut()
                .lease
                .as_mut()
                .expect("the lease was judged live");
            let end = lease.timeout_at.unwrap_or(Elapsed(u64::MAX));
            let wanted = now
                .elapsed
                .after(lease_for.unwrap_or(lease.lease_for))
                .min(end);
            lease.expires_at = lease.expires_at.max(wanted);
            left = lease.expires_at.since(now.elapsed);
        });
        left
    }
}
