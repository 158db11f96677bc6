//! The handle of a shard that is not here.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use ganger_types::{Position, ShardId};
use tokio::sync::watch;

use crate::admission::AdmissionControl;
use crate::clock::Clock;
use crate::events::EventHub;
use crate::handle::Shared;
use crate::inbox::inbox;
use crate::message_listener::MessageListener;
use crate::metrics::ShardMetrics;
use crate::numbers::CommitRate;
use crate::ownership::OwnershipCheck;
use crate::readers::ReadPool;
use crate::ticket::QueueSnapshot;
use crate::{Handle, Health, Settings};

impl Handle {
    /// Returns the handle of a shard that is not here: every call is refused as unavailable, for `reason`. It stands for
    /// the shard where a server has none.
    pub fn vacant(shard: &ShardId, reason: &str, clock: Arc<dyn Clock>) -> Self {
        let metrics = Arc::new(ShardMetrics::default());
        let settings = Settings {
            shard: shard.clone(),
            ..Settings::default()
        };
        let hub = EventHub::new(shard.clone(), 1, 1, Position(0), Arc::clone(&metrics));
        hub.close(reason.to_owned());
        let check = OwnershipCheck {
            shard: shard.clone(),
            clock: Arc::clone(&clock),
            ownership: None,
        };
        let stopped = Health::Stopped {
            reason: reason.to_owned(),
        };
        // The other ends of these channels are dropped: the shard has ended.
        Self {
            shared: Arc::new(Shared {
                id: shard.clone(),
                inbox: inbox().0,
                admission: AdmissionControl::new(&settings, Arc::clone(&metrics)),
                hub,
                reads: ReadPool::closed(check.clone(), Arc::clone(&metrics)),
                metrics,
                commit_rate: CommitRate::new(clock.monotonic()),
                clock,
                check,
                health: watch::channel(stopped).1,
                is_over: watch::channel(true).1,
                outbox: watch::channel(0).1,
                operations: watch::channel(0).1,
                listener: Arc::new(MessageListener::default()),
                hold: None,
                snapshot: Arc::new(Mutex::new(QueueSnapshot::default())),
                next_waiter: AtomicU64::new(1),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use ganger_types::query::Query;
    use ganger_types::{Command, JobKey, Timestamp};

    use crate::{CallError, Handle, Health, ManualClock, ShardSet};
    use ganger_types::ShardId;

    #[tokio::test]
    async fn a_vacant_shard_refuses_everything() {
        let clock = ManualClock::new(Timestamp(0));
        let vacant = Handle::vacant(&ShardId::default(), "it is elsewhere", clock);
        let called = vacant.call(Command::Query(Box::new(Query::Peers))).await;
        let read = vacant.payload(JobKey(1)).await;
        for error in [called.err(), read.err()] {
            assert!(
                matches!(error, Some(CallError::Unavailable { .. })),
                "{error:?}"
            );
        }
        assert!(matches!(vacant.ready().await, Health::Stopped { .. }));
        vacant.stop().await;
        let set = ShardSet::empty(vacant.clone());
        assert!(set.now().is_empty());
        assert_eq!(set.first().id(), vacant.id());
        set.put(vacant.clone());
        set.put(vacant.clone());
        assert_eq!(set.clone().now().len(), 1);
        assert!(set.get(vacant.id()).is_some());
        assert!(set.remove(vacant.id()).is_some());
        assert!(set.now().is_empty());
    }
}
