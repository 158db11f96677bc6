//! Grace for leases after a time in which no worker could renew them.

use ganger_types::{Elapsed, JobKey, LeaseRecord, Now};

use crate::engine::Engine;

impl Engine {
    /// Gives every live lease its full length again, as a restart does (`rel T6`). The host calls it after a time in
    /// which it could take no renewals: the process was paused, the machine suspended, or the store did not answer. Call
    /// it before anything else of this moment, or the leases have expired.
    ///
    /// Nothing is written: after a crash the leases get their full length anyway. Leases on callers' clocks do not
    /// change, because time passes there only with calls.
    pub fn extend_leases(&mut self, now: Now) {
        let spaces = self
            .spaces
            .iter()
            .filter(|space| !space.runs_on_callers_clock());
        let workers = spaces.flat_map(|space| space.workers.values());
        let held: Vec<JobKey> = workers
            .flat_map(|worker| worker.holds.iter().copied())
            .collect();
        for key in held {
            self.reindex(key, |job| {
                if let Some(lease) = &mut job.details_mut().lease {
                    restore(lease, now.elapsed);
                }
            });
        }
    }
}

/// Gives a lease its full length from `now` on, if it has less, and the attempt at least as much time.
pub(crate) fn restore(lease: &mut LeaseRecord, now: Elapsed) {
    lease.expires_at = lease.expires_at.max(now.after(lease.lease_for));
    lease.timeout_at = lease.timeout_at.map(|at| at.max(lease.expires_at));
}
