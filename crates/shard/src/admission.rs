//! Admission control: bounds the requests in flight and refuses further ones at once (`rel B2`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ganger_types::ShardId;

use crate::metrics::{ShardMetrics, count};
use crate::{CallError, Settings};

/// Time after which a refused caller may try again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Counts the requests that were admitted and not yet answered.
pub(crate) struct AdmissionControl {
    shard: ShardId,
    commands_max: usize,
    bytes_max: usize,
    waiters_max: usize,
    commands: AtomicUsize,
    bytes: AtomicUsize,
    waiters: AtomicUsize,
    metrics: Arc<ShardMetrics>,
}

/// Permission for one request in flight; given back when dropped.
pub(crate) struct Permit {
    admission: Arc<AdmissionControl>,
    commands: usize,
    bytes: usize,
    waiters: usize,
}

impl AdmissionControl {
    pub(crate) fn new(settings: &Settings, metrics: Arc<ShardMetrics>) -> Arc<Self> {
        Arc::new(Self {
            shard: settings.shard.clone(),
            commands_max: settings.inbox_commands_max,
            bytes_max: settings.inbox_bytes_max,
            waiters_max: settings.waiters_max,
            commands: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
            metrics,
        })
    }

    /// Admits a request with this many commands and bytes of payload. A request larger than the byte limit is
    /// admitted only alone.
    pub(crate) fn enter(
        self: &Arc<Self>,
        commands: usize,
        bytes: usize,
    ) -> Result<Permit, CallError> {
        let waiting = self.commands.fetch_add(commands, Ordering::Relaxed);
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let permit = Permit {
            admission: Arc::clone(self),
            commands,
            bytes,
            waiters: 0,
        };
        self.show();
        if waiting > 0 && waiting.saturating_add(commands) > self.commands_max {
            return Err(self.refuse(waiting, self.commands_max));
        }
        if held > 0 && held.saturating_add(bytes) > self.bytes_max {
            return Err(self.refuse(waiting, self.commands_max));
        }
        Ok(permit)
    }

    /// Admits a request that may wait for long.
    pub(crate) fn enter_waiting(self: &Arc<Self>) -> Result<Permit, CallError> {
        let waiting = self.waiters.fetch_add(1, Ordering::Relaxed);
        let permit = Permit {
            admission: Arc::clone(self),
            commands: 0,
            bytes: 0,
            waiters: 1,
        };
        if waiting >= self.waiters_max {
            return Err(self.refuse(waiting, self.waiters_max));
        }
        Ok(permit)
    }

    fn refuse(&self, waiting: usize, limit: usize) -> CallError {
        self.metrics.counters.overloaded_total.inc();
        CallError::Overloaded {
            shard: self.shard.clone(),
            waiting,
            limit,
            retry_after: RETRY_AFTER,
        }
    }

    fn show(&self) {
        let gauges = &self.metrics.gauges;
        gauges
            .inbox_commands
            .set(count(self.commands.load(Ordering::Relaxed)));
        gauges
            .inbox_bytes
            .set(count(self.bytes.load(Ordering::Relaxed)));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let admission = &self.admission;
        if self.waiters > 0 {
            admission.waiters.fetch_sub(self.waiters, Ordering::Relaxed);
            return;
        }
        admission
            .commands
            .fetch_sub(self.commands, Ordering::Relaxed);
        admission.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        admission.show();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Arc<AdmissionControl> {
        let settings = Settings {
            inbox_commands_max: 2,
            inbox_bytes_max: 100,
            waiters_max: 1,
            ..Settings::default()
        };
        AdmissionControl::new(&settings, Arc::default())
    }

    #[test]
    fn too_much_is_refused_and_room_comes_back() {
        let admission = admission();
        let one = admission.enter(1, 10).expect("room");
        let two = admission.enter(1, 10).expect("room");
        assert!(matches!(
            admission.enter(1, 10),
            Err(CallError::Overloaded {
                waiting: 2,
                limit: 2,
                ..
            })
        ));
        drop(one);
        assert!(admission.enter(1, 91).is_err(), "too many bytes");
        assert!(admission.enter(1, 90).is_ok());
        drop(two);
        assert!(
            admission.enter(5, 1_000).is_ok(),
            "a lone large one is let in"
        );
    }

    #[test]
    fn waiting_requests_have_a_limit_of_their_own() {
        let admission = admission();
        let one = admission.enter_waiting().expect("room");
        assert!(admission.enter_waiting().is_err());
        assert!(admission.enter(1, 0).is_ok());
        drop(one);
        assert!(admission.enter_waiting().is_ok());
    }
}
