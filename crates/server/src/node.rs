//! One of several nodes of a cluster: its beats, and the shards that it owns by turns.
//!
//! A thread beats (`beats`) and says what it sees; a task (`serving`) opens and closes shards accordingly. Neither
//! decides who owns a shard: the store's fence does.

mod beats;
mod counters;
pub(crate) mod marks;
mod serving;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ganger_router::Owners;
use ganger_shard::{Clock as _, Ownership, SystemClock};
use ganger_store_postgres::{BEAT_EVERY, Member, Seen};
use tokio::sync::{oneshot, watch};

use crate::config::Config;
use crate::error::StartError;
use crate::shard_dispatch::ShardDispatch;
use crate::shards::{FirstEnded, Stores};
pub(crate) use counters::NodeCounters;

/// Longest time for which a node refuses a shard that failed there, and the number of failures after which that no longer
/// doubles.
const REFUSED_MAX: Duration = Duration::from_secs(300);
const REFUSED_DOUBLINGS: u32 = 8;
/// Time without a failure of a shard after which earlier ones do not count.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// What the thread that beats must do besides.
enum Order {
    /// Give up a shard that this node does not serve any more, and beat at once.
    Release(u32),
    /// Give up a shard that this node cannot serve, for another node to try, and beat at once.
    GiveUp(u32),
    /// Beat at once: another node has released a shard for this one.
    Beat,
    /// Let other nodes take the shards of this one.
    Drain,
    /// Leave the cluster, and say so.
    Leave(oneshot::Sender<()>),
}

/// What this node holds, after its last beat.
#[derive(Default)]
struct Held {
    /// Numbers of its shards.
    ours: BTreeSet<u32>,
    /// Time until which they are surely its own.
    until: Duration,
    /// What the open shards know of that.
    ownerships: BTreeMap<u32, Arc<Ownership>>,
    /// Numbers of times that each shard was taken: what the node has of a shard from an earlier time is out of date.
    times_taken: BTreeMap<u32, u64>,
    /// Epochs of all shards, by their numbers.
    epochs: BTreeMap<u32, u64>,
    /// Shards that no node may own, and why.
    closed: BTreeMap<u32, String>,
    /// Shards that this node does not hold before these times.
    refused: BTreeMap<u32, Duration>,
    /// Shards that have failed here.
    failures: BTreeMap<u32, Failures>,
    /// Shards that this node serves until these times although they are placed on other nodes, which did not take them.
    kept: BTreeMap<u32, (String, Duration)>,
}

/// How often a shard has failed here: could not be opened, or ended.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    count: u32,
    last: Duration,
}

impl Failures {
    /// Counts a failure; those of long ago are forgotten.
    fn count(&mut self, now: Duration) -> u32 {
        let is_new = now.saturating_sub(self.last) > FORGOTTEN_AFTER;
        self.count = if is_new { 1 } else { self.count + 1 };
        self.last = now;
        self.count
    }
}

/// State that the thread and the task share.
struct Shared {
    held: Mutex<Held>,
    /// Whether the node takes shards: not when it stops.
    takes_more: AtomicBool,
    /// Whether the node's shards are being closed, since the server stops.
    is_over: AtomicBool,
    counters: Arc<NodeCounters>,
    owners: Owners,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node may hold a shard now.
    fn may_hold(&self, shard: u32) -> bool {
        let held = self.held();
        let until = held.refused.get(&shard).copied();
        self.takes_more.load(Ordering::Acquire)
            && !held.closed.contains_key(&shard)
            && until.is_none_or(|until| SystemClock.monotonic() >= until)
    }

    /// Serves a shard for a time although it is placed on another node, which has not taken it.
    fn keep(&self, shard: u32, placed: &str, time: Duration) {
        let until = SystemClock.monotonic() + time;
        self.held().kept.insert(shard, (placed.to_owned(), until));
    }

    /// Whether this node serves a shard that is placed on another node.
    fn keeps(&self, shard: u32, placed: &str) -> bool {
        let held = self.held();
        let kept = held.kept.get(&shard);
        kept.is_some_and(|(node, until)| node == placed && SystemClock.monotonic() < *until)
    }

    /// Refuses to hold a shard for a time.
    fn refuse(&self, shard: u32, time: Duration) {
        let until = SystemClock.monotonic() + time;
        let mut held = self.held();
        held.refused.insert(shard, until);
        held.kept.remove(&shard);
    }

    /// Refuses to hold a shard that failed here, for a lease at first and longer each time.
    fn refuse_failed(&self, shard: u32, lease: Duration) {
        let now = SystemClock.monotonic();
        let failures = {
            let mut held = self.held();
            let failures = held.failures.entry(shard).or_default();
            failures.count(now)
        };
        let time = lease.saturating_mul(1 << (failures - 1).min(REFUSED_DOUBLINGS));
        self.refuse(shard, time.min(REFUSED_MAX).max(lease));
    }

    /// Notes the result of a beat: until when which shards are surely ours.
    fn confirm(&self, seen: &Seen, until: Duration) {
        let mut held = self.held();
        let ours = seen.shards.iter().filter(|shard| shard.is_ours);
        held.ours = ours.map(|shard| shard.number).collect();
        held.until = until;
        for shard in seen.shards.iter().filter(|shard| shard.is_new) {
            *held.times_taken.entry(shard.number).or_default() += 1;
            if let Some(earlier) = held.ownerships.remove(&shard.number) {
                earlier.end();
            }
        }
        for (number, ownership) in &held.ownerships {
            if held.ours.contains(number) {
                ownership.set_until(until);
            } else {
                ownership.end();
            }
        }
    }

    /// Returns the ownership of a shard that is being opened.
    fn adopt(&self, shard: u32) -> Arc<Ownership> {
        let ownership = Arc::new(Ownership::default());
        let mut held = self.held();
        if held.ours.contains(&shard) {
            ownership.set_until(held.until);
        }
        held.ownerships.insert(shard, Arc::clone(&ownership));
        ownership
    }

    /// Returns how many times a shard was taken.
    fn times_taken(&self, shard: u32) -> u64 {
        self.held().times_taken.get(&shard).copied().unwrap_or(0)
    }

    fn forget(&self, shard: u32) {
        if let Some(ownership) = self.held().ownerships.remove(&shard) {
            ownership.end();
        }
    }
}

/// What a node needs of its server.
pub(crate) struct NodeContext<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) config: &'a Config,
    pub(crate) wiring: crate::start::Wiring,
    pub(crate) dispatcher: &'a Arc<ShardDispatch>,
    pub(crate) ended: FirstEnded,
}

/// This process as a node of its cluster.
pub(crate) struct Node {
    orders: Sender<Order>,
    shared: Arc<Shared>,
    /// Longest time for which a stopping node hands its shards over.
    drain_for: Duration,
}

/// Starts the beats and the task that serves the node's shards; `None` if this process serves all shards alone. Call
/// it within a Tokio runtime.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn start(context: NodeContext<'_>) -> Result<Option<Node>, StartError> {
    let cluster = context.stores.cluster.as_ref();
    let Some((cluster, member)) = cluster.and_then(|it| Some((it, it.member()?))) else {
        return Ok(None);
    };
    let shared = Arc::new(Shared {
        held: Mutex::default(),
        takes_more: AtomicBool::new(true),
        is_over: AtomicBool::new(false),
        counters: Arc::clone(&member.counters),
        owners: member.owners.clone(),
    });
    let (orders, ordered) = channel();
    let (seen_out, seen) = watch::channel(None);
    let beats = beats::Beats {
        member: Member::new(cluster.database(), member.name.clone()),
        database: Arc::clone(cluster.database()),
        shared: Arc::clone(&shared),
        ordered,
        seen: seen_out,
        ended: context.ended.clone(),
        home: member.home.clone(),
        unreleased: BTreeSet::new(),
        ages: None,
    };
    let thread = std::thread::Builder::new().name("node".to_owned());
    let started = thread.spawn(move || beats.run());
    started.map_err(|error| StartError::System {
        doing: "start the thread that beats",
        reason: error.to_string(),
    })?;
    let (dispatcher, drain_for) = (
        Arc::clone(context.dispatcher),
        context.config.postgres.drain_for,
    );
    let serving = serving::Serving::new(
        context,
        member.name.clone(),
        Arc::clone(&shared),
        orders.clone(),
    );
    tokio::spawn(serving.run(seen));
    let (marks, stopping) = (Arc::clone(&member.marks), dispatcher.stopping().clone());
    tokio::spawn(marks::tell(Arc::clone(&dispatcher), marks, stopping));
    tokio::spawn(beat_when_released(dispatcher, orders.clone()));
    Ok(Some(Node {
        orders,
        shared,
        drain_for,
    }))
}

/// Beats whenever another node has released a shard for this one, until the server stops.
async fn beat_when_released(dispatcher: Arc<ShardDispatch>, orders: Sender<Order>) {
    while dispatcher.next_release().await.is_some() && orders.send(Order::Beat).is_ok() {}
}

impl Node {
    /// Hands the node's shards over to other nodes, for a limited time, because the server stops. Requests are answered
    /// meanwhile: here, or by the other nodes.
    pub(crate) async fn hand_over_all(&self) {
        self.shared.takes_more.store(false, Ordering::Release);
        self.shared.owners.change(|state| state.is_ready = false);
        // Other shards may have no owner at all.
        let handing_over = self.shared.owners.now().owned();
        if handing_over.is_empty() || self.orders.send(Order::Drain).is_err() {
            return;
        }
        let mut changes = self.shared.owners.subscribe();
        let handed_over = async {
            while !self.shared.owners.now().are_elsewhere(&handing_over) && self.has_taker() {
                // It changes at the latest with the next beat that finds another owner.
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(self.drain_for, handed_over)
            .await
            .is_err()
        {
            let after = self.drain_for;
            tracing::warn!(
                ?after,
                "the node still has shards; they are closed, and other nodes take them over"
            );
        }
        // Until their next beats, other nodes send requests here.
        tokio::time::sleep(2 * BEAT_EVERY).await;
    }

    /// Whether another node takes shards.
    fn has_taker(&self) -> bool {
        let state = self.shared.owners.now();
        let mut others = state.nodes.iter().filter(|node| node.name != state.node);
        others.any(|node| node.is_live && !node.is_draining)
    }

    /// Takes no more shards, and closes none: the server does that.
    pub(crate) fn take_no_more(&self) {
        self.shared.takes_more.store(false, Ordering::Release);
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.owners.change(|state| state.is_ready = false);
    }

    /// Leaves the cluster, once no shard is served here: others take the shards over at once.
    pub(crate) async fn leave(self) {
        let (left, done) = oneshot::channel();
        if self.orders.send(Order::Leave(left)).is_ok() {
            // An error means that the thread has ended.
            drop(done.await);
        }
    }
}
