//! The task that opens the shards which this node holds, and closes those that it does not hold any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use ganger_router::{ClusterNode, ClusterShard, ClusterState};
use ganger_shard::{Clock as _, Handle, Health, StopCause, SystemClock};
use ganger_store_postgres::{NodeName, SILENT_AFTER, Seen, SeenShard};
use ganger_types::ShardId;
use tokio::sync::{mpsc, watch};

use super::{NodeContext, Order, Shared};
use crate::config::Config;
use crate::error::StartError;
use crate::shard_dispatch::{Dialects, ShardDispatch};
use crate::shards::{OnEnded, Opening, Stores, is_of_shard_alone, open};

/// Longest time for which the requests in progress at a shard delay its move.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(1);

/// Time after which a shard that was released for another node, and that nobody holds, is served here again.
const TAKE_BACK_AFTER: Duration = Duration::from_secs(1);

/// A shard of this node.
enum Slot {
    Opening,
    /// It was claimed by this time. It is not served before a beat that began later says that this node holds it.
    Claimed(Handle, Duration),
    Open(Handle),
    Closing,
}

/// What has become of a shard.
enum Event {
    /// The attempt to open it has ended.
    Opened(SeenShard, Result<Handle, StartError>),
    /// It has ended by itself, because another process took it over, or it has lost commits.
    Ended(u32, StopCause),
    /// It has ended as it was asked to. If it goes to another node: the time since which it gets no request here.
    Closed(u32, Option<Duration>),
    /// The node that is to serve it does so, or not in time: the time without requests.
    HandedOver(ShardId, Result<Duration, String>),
    /// The node that it was released for has had the time to take it.
    TakenByNow(u32, String),
}

/// State of the task.
pub(super) struct Serving {
    wiring: crate::start::Wiring,
    dispatcher: Arc<ShardDispatch>,
    stores: Stores,
    config: Config,
    name: NodeName,
    shared: Arc<Shared>,
    orders: Sender<Order>,
    slots: BTreeMap<u32, Slot>,
    /// For each of them the number of times that it had been taken when it was opened. If the node has lost it and taken
    /// it again since, which a node that stood still does not see otherwise, what it has is out of date.
    opened_at: BTreeMap<u32, u64>,
    /// Shards that were closed for other nodes, which were not told yet, and the times of their last requests.
    released: BTreeMap<u32, Duration>,
    /// Shards that other nodes have had the time to take, and these nodes.
    taken_by_now: BTreeMap<u32, String>,
    events_out: mpsc::UnboundedSender<Event>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Serving {
    pub(super) fn new(
        context: NodeContext<'_>,
        name: NodeName,
        shared: Arc<Shared>,
        orders: Sender<Order>,
    ) -> Self {
        let (events_out, events) = mpsc::unbounded_channel();
        Self {
            dispatcher: Arc::clone(context.dispatcher),
            stores: context.stores.clone(),
            config: context.config.clone(),
            wiring: context.wiring,
            name,
            shared,
            orders,
            slots: BTreeMap::new(),
            opened_at: BTreeMap::new(),
            released: BTreeMap::new(),
            taken_by_now: BTreeMap::new(),
            events_out,
            events,
        }
    }

    /// Follows what the beats see, until they end.
    pub(super) async fn run(mut self, mut seen: watch::Receiver<Option<Arc<Seen>>>) {
        loop {
            tokio::select! {
                changed = seen.changed() => if changed.is_err() {
                    return;
                },
                Some(event) = self.events.recv() => self.note(event),
            }
            let now = seen.borrow_and_update().clone();
            if let Some(now) = now.filter(|_| !self.is_over()) {
                self.take_back(&now);
                self.settle(&now);
                self.publish(&now);
                self.tell_released(&now);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Acquire)
    }

    /// Gives a shard up in the control tables.
    fn release(&self, shard: u32) {
        // Without the thread nobody beats, and others find out.
        drop(self.orders.send(Order::Release(shard)));
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Opened(shard, Ok(handle)) => {
                let at = SystemClock.monotonic();
                self.slots.insert(shard.number, Slot::Claimed(handle, at));
                drop(self.orders.send(Order::Beat));
            }
            Event::Opened(shard, Err(error)) => {
                tracing::error!(shard = %shard.id, %error, "the shard cannot be opened here; another node tries, or this one again later");
                self.give_up(shard.number);
            }
            Event::Ended(number, cause) => {
                if let Some(Slot::Open(handle) | Slot::Claimed(handle, _)) = self.slots.get(&number)
                {
                    let id = handle.id().clone();
                    if has_failed(&cause) {
                        tracing::error!(shard = %id, %cause, "the shard has failed here; another node tries, and the other shards are served on");
                    } else {
                        tracing::warn!(shard = %id, %cause, "the shard has ended; the other shards are served on");
                    }
                    self.shared.counters.lost.fetch_add(1, Ordering::Relaxed);
                    if let Some(served) = self.withdraw(&id) {
                        // The streams of workers would go on, and get no jobs.
                        tokio::spawn(async move { served.in_flight.leave(Duration::ZERO).await });
                    }
                    if has_failed(&cause) {
                        self.give_up(number);
                    } else {
                        self.drop_slot(number);
                    }
                }
            }
            Event::Closed(number, since) => {
                self.slots.remove(&number);
                self.shared.forget(number);
                self.release(number);
                self.released.extend(since.map(|since| (number, since)));
            }
            Event::TakenByNow(number, node) => {
                self.taken_by_now.insert(number, node);
            }
            Event::HandedOver(shard, Ok(pause)) => {
                tracing::info!(%shard, ?pause, "another node serves the shard");
                self.dispatcher.end_hand_over(&shard);
                self.shared.counters.handed_over(Some(pause));
            }
            Event::HandedOver(shard, Err(reason)) => {
                tracing::warn!(%shard, reason, "the shard was released, and its new node does not serve it yet");
                self.shared.counters.handed_over(None);
            }
        }
    }

    /// Serves a shard that this node has claimed, and holds still.
    ///
    /// A node that stood still on its way to the claim may have lost the shard, and then fences its next owner, which
    /// does not know of that before its next commit. If both served, reads there would miss what was acknowledged here.
    fn opened(&mut self, shard: &SeenShard, handle: Handle) {
        if matches!(handle.health(), Health::Stopped { .. }) {
            return self.give_up(shard.number);
        }
        tracing::info!(shard = %shard.id, "this node owns the shard");
        self.wiring.router.add(&handle);
        let dialects = self.wiring.dialects(&handle);
        self.dispatcher.put(&handle, dialects);
        self.dispatcher.end_hand_over(handle.id());
        self.slots.insert(shard.number, Slot::Open(handle));
    }

    /// Forgets a shard that ended here; this node does not take it again for a lease.
    fn drop_slot(&mut self, number: u32) {
        self.slots.remove(&number);
        self.shared.forget(number);
        self.shared.refuse(number, self.name.lease);
        self.release(number);
    }

    /// Forgets a shard that failed here, and lets another node try. A shard that fails everywhere goes from node to node,
    /// more and more slowly.
    fn give_up(&mut self, number: u32) {
        self.slots.remove(&number);
        self.shared.forget(number);
        self.shared.refuse_failed(number, self.name.lease);
        self.shared.counters.failed.fetch_add(1, Ordering::Relaxed);
        // Without the thread nobody beats, and others find out.
        drop(self.orders.send(Order::GiveUp(number)));
    }

    /// Lets no further request get to a shard here. Returns what served it.
    fn withdraw(&self, shard: &ShardId) -> Option<Arc<Dialects>> {
        let served = self.dispatcher.remove(shard);
        self.wiring.router.remove(shard);
        served
    }

    /// Serves shards again that were released for nodes which did not take them: such a node may be dead, and nobody
    /// knows that before its lease has passed.
    fn take_back(&mut self, seen: &Seen) {
        for (number, node) in std::mem::take(&mut self.taken_by_now) {
            let mut shards = seen.shards.iter();
            let untaken = shards.find(|shard| {
                shard.number == number && shard.node == node && shard.holder.is_empty()
            });
            if let Some(shard) = untaken.filter(|_| !self.slots.contains_key(&number)) {
                tracing::warn!(shard = %shard.id, node, after = ?TAKE_BACK_AFTER, "the node has not taken the shard, which is served here again");
                self.shared.keep(number, &node, self.name.lease);
                // It holds the shard, if the other node does not even now.
                drop(self.orders.send(Order::Beat));
            }
        }
    }

    /// Opens and closes shards.
    fn settle(&mut self, seen: &Seen) {
        for shard in &seen.shards {
            let is_own = shard.node == self.name.node;
            let is_kept = !is_own && self.shared.keeps(shard.number, &shard.node);
            let is_placed = shard.is_ours && (is_own || is_kept);
            if !shard.is_ours && !shard.holder.is_empty() {
                self.dispatcher.end_hand_over(&shard.id);
            }
            let times_taken = self.shared.times_taken(shard.number);
            let is_current = self.opened_at.get(&shard.number) == Some(&times_taken);
            match self.slots.get(&shard.number) {
                None if is_placed && (is_kept || self.shared.may_hold(shard.number)) => {
                    let why = usize::from(is_kept);
                    self.shared.counters.claims[why].fetch_add(1, Ordering::Relaxed);
                    self.open(shard);
                }
                None if shard.is_ours => self.release(shard.number),
                Some(Slot::Open(handle) | Slot::Claimed(handle, _)) if !is_current => {
                    let handle = handle.clone();
                    self.close(shard, handle, true);
                }
                Some(Slot::Claimed(handle, at)) if is_placed && seen.began >= *at => {
                    let handle = handle.clone();
                    self.opened(shard, handle);
                }
                Some(Slot::Claimed(handle, at)) if seen.began >= *at => {
                    let handle = handle.clone();
                    self.close(shard, handle, !shard.is_ours);
                }
                Some(Slot::Open(handle)) if !is_placed => {
                    let handle = handle.clone();
                    self.close(shard, handle, !shard.is_ours);
                }
                _ => {}
            }
        }
    }

    fn open(&mut self, shard: &SeenShard) {
        self.slots.insert(shard.number, Slot::Opening);
        let times = self.shared.times_taken(shard.number);
        self.opened_at.insert(shard.number, times);
        let opening = Opening {
            shard: shard.id.clone(),
            on_ended: self.on_ended(shard.number),
            ownership: Some(self.shared.adopt(shard.number)),
        };
        let (config, stores) = (self.config.clone(), self.stores.clone());
        let (events, shard) = (self.events_out.clone(), shard.clone());
        tokio::spawn(async move {
            let opened = open(&config, &stores, opening).await;
            // Nobody listens after the beats have ended.
            let _ = events.send(Event::Opened(shard, opened));
        });
    }

    /// Hears of a shard that ends by itself. It ends alone: the node serves its other shards on.
    fn on_ended(&self, number: u32) -> OnEnded {
        let events = self.events_out.clone();
        Arc::new(move |_, cause| {
            if *cause != StopCause::Requested {
                // Nobody listens after the beats have ended.
                drop(events.send(Event::Ended(number, cause.clone())));
            }
        })
    }

    /// Closes a shard: because it moves to another node, or because another node has taken it, perhaps for a time only.
    fn close(&mut self, shard: &SeenShard, handle: Handle, is_lost: bool) {
        if is_lost {
            tracing::warn!(shard = %shard.id, to = shard.node, "another node has taken the shard over");
            self.shared.counters.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            tracing::info!(shard = %shard.id, to = shard.node, "the shard moves to another node");
            self.dispatcher.begin_hand_over(&shard.id);
        }
        let served = self.withdraw(&shard.id);
        let since = SystemClock.monotonic();
        self.slots.insert(shard.number, Slot::Closing);
        let (events, number) = (self.events_out.clone(), shard.number);
        // A shard that is lost answers nothing more.
        let (within, since) = if is_lost {
            (Duration::ZERO, None)
        } else {
            (IN_FLIGHT_MAX, Some(since))
        };
        tokio::spawn(async move {
            if let Some(served) = served {
                served.in_flight.leave(within).await;
            }
            handle.stop().await;
            let _ = events.send(Event::Closed(number, since));
        });
    }

    /// Tells other nodes that they can take the shards that this one has released for them.
    fn tell_released(&mut self, seen: &Seen) {
        for shard in &seen.shards {
            if shard.node == self.name.node {
                // It came back before its new node was told.
                self.released.remove(&shard.number);
            }
            if shard.is_ours || shard.node == self.name.node {
                continue;
            }
            let Some(since) = self.released.remove(&shard.number) else {
                continue;
            };
            let (dispatcher, events) = (Arc::clone(&self.dispatcher), self.events_out.clone());
            let (late, taker) = (self.events_out.clone(), shard.node.clone());
            let (number, shard) = (shard.number, shard.id.clone());
            tokio::spawn(async move {
                tokio::time::sleep(TAKE_BACK_AFTER).await;
                let _ = late.send(Event::TakenByNow(number, taker));
            });
            tokio::spawn(async move {
                let told = dispatcher.tell_released(&shard).await;
                let pause = told.map(|()| SystemClock.monotonic().saturating_sub(since));
                let _ = events.send(Event::HandedOver(shard, pause));
            });
        }
    }

    /// Shows others what this node sees.
    fn publish(&self, seen: &Seen) {
        let named = |name: &String| (!name.is_empty()).then(|| name.clone());
        let held = self.shared.held();
        let is_open = |number| matches!(self.slots.get(number), Some(Slot::Open(_)));
        let mut placed = seen.shards.iter();
        let is_served = placed.all(|shard| {
            shard.node != self.name.node
                || is_open(&shard.number)
                || held.closed.contains_key(&shard.number)
        });
        let nodes = seen.nodes.iter().map(|node| ClusterNode {
            name: node.name.clone(),
            address: node.address.clone(),
            version: node.version.clone(),
            silent_for: node.silent_for,
            is_live: node.is_live,
            is_silent: node.silent_for >= SILENT_AFTER,
            is_draining: node.is_draining,
        });
        let shards = seen.shards.iter().map(|shard| ClusterShard {
            shard: shard.id.clone(),
            node: named(&shard.node),
            owner: named(&shard.holder),
            epoch: held.epochs.get(&shard.number).copied().unwrap_or(0),
            closed: held.closed.get(&shard.number).cloned(),
        });
        let state = ClusterState {
            node: self.name.node.clone(),
            nodes: nodes.collect(),
            shards: shards.collect(),
            version: seen.version,
            is_ready: is_served
                && SystemClock.monotonic() < held.until
                && self.shared.takes_more.load(Ordering::Acquire),
        };
        drop(held);
        self.shared.owners.change(|now| *now = state);
    }
}

/// Whether the end of a shard is a failure here: its store is damaged or cannot be read, or the engine has failed.
fn has_failed(cause: &StopCause) -> bool {
    !is_of_shard_alone(cause)
}
