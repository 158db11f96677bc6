//! Durable events for subscribers: one bounded ring, with cursors into it.
//!
//! A subscriber costs one cursor. One that falls behind by more than the ring holds is disconnected and slows no
//! other. Positions are consecutive, so a subscriber that resumes misses nothing or gets an error.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ganger_types::{Event, Position, ShardId};
use tokio::sync::watch;

use crate::CallError;
use crate::metrics::{ShardMetrics, count};

/// Number of events read from the ring at a time, so that the lock is held briefly.
const COPY_MAX: usize = 256;

/// Publishes events to subscribers, once they are durable.
pub(crate) struct EventHub {
    shard: ShardId,
    kept_max: usize,
    subscriptions_max: usize,
    metrics: Arc<ShardMetrics>,
    ring: Mutex<Ring>,
    /// The position after the newest event; its changes wake waiting subscribers.
    newest: watch::Sender<u64>,
}

struct Ring {
    /// Consecutive events, ending just before `next`.
    events: VecDeque<Event>,
    next: u64,
    closed: Option<String>,
}

impl Ring {
    fn oldest(&self) -> u64 {
        self.next - count(self.events.len())
    }
}

impl EventHub {
    /// Creates a ring whose first event has this position.
    pub(crate) fn new(
        shard: ShardId,
        kept_max: usize,
        subscriptions_max: usize,
        next: Position,
        metrics: Arc<ShardMetrics>,
    ) -> Arc<Self> {
        let ring = Ring {
            events: VecDeque::new(),
            next: next.0,
            closed: None,
        };
        let newest = watch::Sender::new(next.0);
        let (kept_max, ring) = (kept_max.max(1), Mutex::new(ring));
        Arc::new(Self {
            shard,
            kept_max,
            subscriptions_max,
            metrics,
            ring,
            newest,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the events of a durable turn: a reader that looks from now on finds them. Those who wait for events are woken by
    /// [`EventHub::wake_readers`], after the callers of the turn.
    ///
    /// # Panics
    /// If positions are not consecutive.
    pub(crate) fn add(&self, events: Vec<Event>) {
        let mut ring = self.lock();
        for event in events {
            assert_eq!(
                event.position.0, ring.next,
                "positions of events are consecutive"
            );
            ring.next += 1;
            ring.events.push_back(event);
        }
        let surplus = ring.events.len().saturating_sub(self.kept_max);
        ring.events.drain(..surplus);
    }

    /// Wakes those who wait for events, if there are new ones.
    pub(crate) fn wake_readers(&self) {
        let next = self.lock().next;
        self.newest
            .send_if_modified(|newest| std::mem::replace(newest, next) != next);
    }

    /// Ends every subscription once it has read the published events.
    pub(crate) fn close(&self, reason: String) {
        self.lock().closed = Some(reason);
        self.newest.send_modify(|_| {});
    }

    /// Subscribes to the events after `after`, or from now on.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        after: Option<Position>,
    ) -> Result<Subscription, CallError> {
        let active = self.newest.receiver_count();
        if active >= self.subscriptions_max {
            return Err(CallError::Overloaded {
                shard: self.shard.clone(),
                waiting: active,
                limit: self.subscriptions_max,
                retry_after: Duration::from_secs(1),
            });
        }
        let wake = self.newest.subscribe();
        let ring = self.lock();
        let cursor = after.map_or(ring.next, |after| after.0.saturating_add(1));
        if cursor < ring.oldest() || cursor > ring.next {
            let asked = after.map_or(cursor, |after| after.0);
            return Err(CallError::PositionTooOld {
                asked,
                oldest: ring.oldest(),
            });
        }
        drop(ring);
        self.metrics
            .gauges
            .subscriptions
            .set(count(self.newest.receiver_count()));
        Ok(Subscription {
            hub: Arc::clone(self),
            cursor,
            taken: VecDeque::new(),
            wake: Some(wake),
        })
    }
}

/// Events that were read back, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastEvents {
    /// The events of the page.
    pub events: Vec<Event>,
    /// Position of the oldest event that is kept; positions before it cannot be read back.
    pub oldest: Position,
    /// Position behind the newest event.
    pub end: Position,
    /// Position before which the next page begins; `None`: nothing older is kept.
    pub next: Option<Position>,
}

impl EventHub {
    /// Reads events back, the newest first: those before a position, or the newest, that `is_wanted` selects, at most
    /// `limit`. Looks at no more than `looked_max` events.
    pub(crate) fn past(
        &self,
        before: Option<Position>,
        limit: usize,
        looked_max: u64,
        is_wanted: impl Fn(&Event) -> bool,
    ) -> PastEvents {
        let mut past = PastEvents::default();
        let mut cursor = before.map_or(u64::MAX, |before| before.0);
        let mut left = looked_max;
        loop {
            // Only so many events at a time, because publishing waits meanwhile.
            let ring = self.lock();
            let oldest = ring.oldest();
            cursor = cursor.min(ring.next);
            (past.oldest, past.end) = (Position(oldest), Position(ring.next));
            let slice = count(COPY_MAX).min(left);
            let from = cursor.saturating_sub(slice).max(oldest);
            let place = |position: u64| usize::try_from(position - oldest).unwrap_or(usize::MAX);
            if from >= cursor {
                past.next = None;
                return past;
            }
            let looked = ring.events.range(place(from)..place(cursor)).rev();
            for event in looked {
                cursor = event.position.0;
                left -= 1;
                if is_wanted(event) {
                    past.events.push(event.clone());
                }
                if past.events.len() == limit || left == 0 {
                    past.next = (cursor > oldest).then_some(Position(cursor));
                    return past;
                }
            }
        }
    }
}

/// A subscription to events, delivered as they become durable.
pub struct Subscription {
    hub: Arc<EventHub>,
    /// The position after the last one taken out of the ring.
    cursor: u64,
    /// Events taken out of the ring and not yet returned.
    taken: VecDeque<Event>,
    /// Signals new events; `None` only during drop.
    wake: Option<watch::Receiver<u64>>,
}

impl Subscription {
    /// The position of the last returned event, from which a new subscription continues: 0 before the first event of
    /// the shard. `None` only before an event with the position 0, with which shards of older versions began.
    pub fn position(&self) -> Option<Position> {
        let next = self.cursor - count(self.taken.len());
        next.checked_sub(1).map(Position)
    }

    /// Waits for and returns the next event. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If this reader fell behind by more than the bounded buffer, or the shard stopped.
    ///
    /// # Panics
    /// Never: the channel it waits on lives as long as the subscription.
    pub async fn next(&mut self) -> Result<Event, CallError> {
        loop {
            if let Some(event) = self.taken.pop_front() {
                return Ok(event);
            }
            let wake = self.wake.as_mut().expect("it is taken away on drop only");
            // Marked as seen before the ring is read, so that later events wake.
            wake.borrow_and_update();
            if !self.take()? {
                let wake = self.wake.as_mut().expect("it is taken away on drop only");
                wake.changed()
                    .await
                    .expect("the hub lives as long as this subscription");
            }
        }
    }

    /// Waits for the next events, and returns what `pick` takes from each of them, perhaps nothing. Events are not
    /// copied. Dropping the future loses nothing.
    ///
    /// # Errors
    /// As for [`Subscription::next`].
    ///
    /// # Panics
    /// Never: the channel it waits on lives as long as the subscription.
    pub async fn pick<T>(
        &mut self,
        pick: impl Fn(&Event) -> Option<T>,
    ) -> Result<Vec<T>, CallError> {
        let taken = std::mem::take(&mut self.taken);
        if !taken.is_empty() {
            return Ok(taken.iter().filter_map(pick).collect());
        }
        loop {
            let wake = self.wake.as_mut().expect("it is taken away on drop only");
            // Marked as seen before the ring is read, so that later events wake.
            wake.borrow_and_update();
            let before = self.cursor;
            let mut picked = Vec::new();
            self.read(|event| picked.extend(pick(event)))?;
            if self.cursor > before {
                return Ok(picked);
            }
            let wake = self.wake.as_mut().expect("it is taken away on drop only");
            wake.changed()
                .await
                .expect("the hub lives as long as this subscription");
        }
    }

    /// Copies the next events out of the ring; returns false if there are none yet.
    fn take(&mut self) -> Result<bool, CallError> {
        let mut taken = std::mem::take(&mut self.taken);
        let read = self.read(|event| taken.push_back(event.clone()));
        self.taken = taken;
        read?;
        Ok(!self.taken.is_empty())
    }

    /// Passes the next events in the ring to `each`, and moves the cursor behind them.
    fn read(&mut self, mut each: impl FnMut(&Event)) -> Result<(), CallError> {
        let ring = self.hub.lock();
        let oldest = ring.oldest();
        if self.cursor < oldest {
            self.hub.metrics.counters.subscribers_cut_total.inc();
            let asked = self.cursor.saturating_sub(1);
            return Err(CallError::PositionTooOld { asked, oldest });
        }
        let skip = usize::try_from(self.cursor - oldest).unwrap_or(usize::MAX);
        let before = self.cursor;
        for event in ring.events.iter().skip(skip).take(COPY_MAX) {
            each(event);
            self.cursor += 1;
        }
        match &ring.closed {
            Some(reason) if self.cursor == before => {
                Err(CallError::unavailable(&self.hub.shard, reason.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.wake = None;
        let left = self.hub.newest.receiver_count();
        self.hub.metrics.gauges.subscriptions.set(count(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::{Happening, Namespace, Timestamp, Worker};

    fn publish(hub: &EventHub, events: Vec<Event>) {
        hub.add(events);
        hub.wake_readers();
    }

    fn event(position: u64) -> Event {
        Event {
            position: Position(position),
            at: Timestamp(0),
            namespace: Namespace::default(),
            happening: Happening::WorkerSeen {
                worker: Worker::from_static("w"),
            },
        }
    }

    fn hub(kept: usize) -> Arc<EventHub> {
        EventHub::new(ShardId::default(), kept, 3, Position(10), Arc::default())
    }

    #[tokio::test]
    async fn a_subscriber_that_comes_back_misses_nothing() {
        let hub = hub(4);
        let mut first = hub.subscribe(None).expect("from now on");
        publish(&hub, vec![event(10), event(11)]);
        assert_eq!(first.next().await.expect("there").position, Position(10));
        publish(&hub, vec![event(12)]);
        let mut again = hub.subscribe(Some(Position(10))).expect("kept");
        assert_eq!(again.next().await.expect("there").position, Position(11));
        assert_eq!(again.next().await.expect("there").position, Position(12));
    }

    #[test]
    fn events_are_read_back_from_the_newest_on() {
        let hub = hub(400);
        publish(&hub, (10..1_000).map(event).collect());
        let even = |event: &Event| event.position.0.is_multiple_of(2);
        let positions = |past: &PastEvents| -> Vec<u64> {
            past.events.iter().map(|event| event.position.0).collect()
        };
        let page = hub.past(None, 2, 5_000, even);
        assert_eq!(positions(&page), [998, 996]);
        assert_eq!((page.oldest, page.end), (Position(600), Position(1_000)));
        let page = hub.past(page.next, 1, 5_000, even);
        assert_eq!(positions(&page), [994]);
        let last = hub.past(Some(Position(603)), 10, 5_000, even);
        assert_eq!((positions(&last), last.next), (vec![602, 600], None));
        let bounded = hub.past(None, 10, 3, |_| false);
        assert_eq!(bounded.next, Some(Position(997)));
        assert_eq!(hub.past(Some(Position(5)), 10, 5, even).next, None);
    }

    #[tokio::test]
    async fn after_a_restart_the_last_position_still_resumes() {
        let hub = hub(4);
        let mut resumed = hub
            .subscribe(Some(Position(9)))
            .expect("nothing was missed");
        publish(&hub, vec![event(10)]);
        assert_eq!(resumed.next().await.expect("there").position, Position(10));
        let too_old = hub.subscribe(Some(Position(8))).err();
        assert_eq!(
            too_old,
            Some(CallError::PositionTooOld {
                asked: 8,
                oldest: 10
            })
        );
        assert!(
            hub.subscribe(Some(Position(11))).is_err(),
            "a position never given out"
        );
    }

    #[tokio::test]
    async fn a_slow_subscriber_is_cut_and_others_are_not_disturbed() {
        let hub = hub(4);
        let mut slow = hub.subscribe(None).expect("from now on");
        let mut quick = hub.subscribe(None).expect("from now on");
        for position in 10..30 {
            publish(&hub, vec![event(position)]);
            assert_eq!(
                quick.next().await.expect("there").position,
                Position(position)
            );
        }
        let cut = slow.next().await;
        assert_eq!(
            cut,
            Err(CallError::PositionTooOld {
                asked: 9,
                oldest: 26
            })
        );
        assert_eq!(hub.metrics.counters.subscribers_cut_total.get(), 1);
    }

    #[tokio::test]
    async fn picked_events_are_those_that_next_would_return() {
        let hub = hub(1_000);
        let mut picking = hub.subscribe(None).expect("from now on");
        let mut copying = hub.subscribe(None).expect("from now on");
        publish(&hub, (10..310).map(event).collect());
        let even = |event: &Event| {
            let position = event.position.0;
            position.is_multiple_of(2).then_some(position)
        };
        // One is copied first, so that the rest of a copied page is picked from.
        assert_eq!(picking.next().await.expect("there").position, Position(10));
        let mut picked = Vec::new();
        while picking.position() != Some(Position(309)) {
            picked.extend(picking.pick(even).await.expect("there"));
        }
        let mut wanted = Vec::new();
        for _ in 10..310 {
            wanted.extend(even(&copying.next().await.expect("there")));
        }
        assert_eq!(picked, wanted[1..]);
        publish(&hub, vec![event(310), event(311)]);
        assert_eq!(picking.pick(|_| None::<()>).await, Ok(Vec::new()));
        assert_eq!(picking.position(), Some(Position(311)));
        hub.close("stopping".into());
        let end = picking.pick(even).await;
        assert!(matches!(end, Err(CallError::Unavailable { .. })), "{end:?}");
    }

    #[tokio::test]
    async fn subscriptions_are_bounded_and_counted() {
        let hub = hub(4);
        let all: Vec<_> = (0..3)
            .map(|_| hub.subscribe(None).expect("within the limit"))
            .collect();
        assert!(matches!(
            hub.subscribe(None),
            Err(CallError::Overloaded { limit: 3, .. })
        ));
        assert_eq!(hub.metrics.gauges.subscriptions.get(), 3);
        drop(all);
        assert_eq!(hub.metrics.gauges.subscriptions.get(), 0);
        assert!(hub.subscribe(None).is_ok());
    }

    #[tokio::test]
    async fn what_was_published_is_read_before_the_end_is_told() {
        let hub = hub(4);
        let mut reader = hub.subscribe(None).expect("from now on");
        publish(&hub, vec![event(10)]);
        hub.close("stopping".into());
        assert!(reader.next().await.is_ok());
        assert!(matches!(
            reader.next().await,
            Err(CallError::Unavailable { .. })
        ));
    }
}
