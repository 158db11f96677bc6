//! The leases that the worker holds, their expiry, and when to renew them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::model::{LeaseRef, LeaseToken};

/// A lease that the worker holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldLease {
    pub(crate) job: String,
    pub(crate) length: Duration,
    /// Time until which the lease surely lasts.
    pub(crate) expires_at: Instant,
    pub(crate) renew_at: Instant,
    /// Whether its end is reported and the answer pending: nothing else is reported about it.
    pub(crate) is_reported: bool,
}

/// All leases of a stream, shared with its reporters.
#[derive(Default)]
pub(crate) struct HeldLeases {
    leases: Mutex<HashMap<LeaseToken, HeldLease>>,
}

impl HeldLeases {
    /// Locks the leases, for a whole batch at a time.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<LeaseToken, HeldLease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn expires_at(&self, lease: &LeaseRef) -> Option<Instant> {
        self.lock().get(&lease.token).map(|lease| lease.expires_at)
    }

    pub(crate) fn remove(&self, token: &LeaseToken) -> Option<HeldLease> {
        self.lock().remove(token)
    }

    /// Records that a renewal sent at `since` was accepted.
    pub(crate) fn renewed(&self, token: &LeaseToken, since: Instant, lease_for: Duration) {
        if let Some(lease) = self.lock().get_mut(token) {
            lease.length = lease_for;
            lease.expires_at = lease.expires_at.max(since + lease_for);
            lease.renew_at = since + lease_for / 3;
        }
    }

    /// Returns the leases to renew now; each is tried again after a sixth of its length until it is answered.
    pub(crate) fn due(&self, now: Instant) -> Vec<LeaseRef> {
        let mut due = Vec::new();
        for (token, lease) in self.lock().iter_mut() {
            if lease.renew_at <= now {
                lease.renew_at = now + lease.length / 6;
                due.push(LeaseRef {
                    job: lease.job.clone(),
                    token: token.clone(),
                });
            }
        }
        due
    }

    /// Removes and returns expired leases.
    pub(crate) fn expired(&self, now: Instant) -> Vec<LeaseRef> {
        let mut leases = self.lock();
        let expired: Vec<_> = leases
            .iter()
            .filter(|(_, lease)| lease.expires_at <= now && !lease.is_reported)
            .map(|(token, lease)| LeaseRef {
                job: lease.job.clone(),
                token: token.clone(),
            })
            .collect();
        for lease in &expired {
            leases.remove(&lease.token);
        }
        expired
    }

    /// Returns the length of the shortest held lease, which sets the interval of checks.
    pub(crate) fn shortest(&self) -> Option<Duration> {
        self.lock().values().map(|lease| lease.length).min()
    }
}
