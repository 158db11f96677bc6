//! One of several nodes of a cluster: its beats, and the shards that it owns by turns.
//!
//! A thread beats (`beats`) and says what it sees; a task (`serving`) opens and closes shards accordingly. Neither
//! decides who owns a shard: the store's fence does.

mod beats;
mod serving;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ganger_metrics::{Exposition, Source};
use ganger_router::Owners;
use ganger_shard::{Clock as _, Ownership, SystemClock};
use ganger_store_postgres::{Member, Seen};
use tokio::sync::{oneshot, watch};

use crate::config::Config;
use crate::error::StartError;
use crate::shard_dispatch::ShardDispatch;
use crate::shards::{FirstEnded, Stores};

/// Numbers of this node, for the metrics.
#[derive(Debug, Default)]
pub(crate) struct NodeCounters {
    /// Shards that this node took from dead nodes, for itself or others.
    taken_over: AtomicU64,
    /// Shards that this node moved from one live node to another.
    moved: AtomicU64,
    /// Beats that failed since the start.
    missed: AtomicU64,
    /// Shards that this node lost to others without having given them up.
    lost: AtomicU64,
}

impl NodeCounters {
    /// Returns the metrics of the node.
    pub(crate) fn source(self: &Arc<Self>, owners: &Owners) -> Source {
        let (counters, owners) = (Arc::clone(self), owners.clone());
        Arc::new(move |out| counters.write(&owners, out))
    }

    fn write(&self, owners: &Owners, out: &mut Exposition) {
        let state = owners.now();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let alive = state.nodes.iter().filter(|node| node.is_live).count();
        let own = |owner: &Option<String>| owner.as_deref() == Some(&state.node);
        let owned = state.shards.iter().filter(|it| own(&it.owner)).count();
        let unowned = state.shards.iter().filter(|it| it.owner.is_none()).count();
        for (name, help, number) in [
            (
                "ganger_cluster_nodes_alive",
                "Nodes of the cluster that beat, as this node sees them.",
                alive,
            ),
            (
                "ganger_cluster_shards_owned",
                "Shards that this node owns.",
                owned,
            ),
            (
                "ganger_cluster_shards_unowned",
                "Shards that no node owns, as this node sees them.",
                unowned,
            ),
        ] {
            out.gauge(name, help).sample(&[], count(number));
        }
        for (name, help, number) in [
            (
                "ganger_cluster_take_overs_total",
                "Shards that this node took from dead nodes, for itself or for others.",
                &self.taken_over,
            ),
            (
                "ganger_cluster_moves_total",
                "Shards that this node moved from one live node to another.",
                &self.moved,
            ),
            (
                "ganger_cluster_shards_lost_total",
                "Shards that other nodes took from this one.",
                &self.lost,
            ),
            (
                "ganger_cluster_beats_missed_total",
                "Beats of this node that failed.",
                &self.missed,
            ),
        ] {
            out.counter(name, help)
                .sample(&[], number.load(Ordering::Relaxed));
        }
    }
}

/// What the thread that beats must do besides.
enum Order {
    /// Give up a shard that this node does not serve any more.
    Release(u32),
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
    /// Epochs of all shards, by their numbers.
    epochs: BTreeMap<u32, u64>,
    /// Shards that this node does not hold before these times.
    refused: BTreeMap<u32, Duration>,
}

/// State that the thread and the task share.
struct Shared {
    held: Mutex<Held>,
    /// Whether the node takes shards: not when it stops.
    takes_more: AtomicBool,
    counters: Arc<NodeCounters>,
    owners: Owners,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node may hold a shard now.
    fn may_hold(&self, shard: u32) -> bool {
        let until = self.held().refused.get(&shard).copied();
        self.takes_more.load(Ordering::Acquire)
            && until.is_none_or(|until| SystemClock.monotonic() >= until)
    }

    /// Refuses to hold a shard for a time.
    fn refuse(&self, shard: u32, time: Duration) {
        let until = SystemClock.monotonic() + time;
        self.held().refused.insert(shard, until);
    }

    /// Notes the result of a beat: until when which shards are surely ours.
    fn confirm(&self, seen: &Seen, until: Duration) {
        let mut held = self.held();
        let ours = seen.shards.iter().filter(|shard| shard.is_ours);
        held.ours = ours.map(|shard| shard.number).collect();
        held.until = until;
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
    };
    let thread = std::thread::Builder::new().name("node".to_owned());
    let started = thread.spawn(move || beats.run());
    started.map_err(|error| StartError::System {
        doing: "start the thread that beats",
        reason: error.to_string(),
    })?;
    let serving = serving::Serving::new(
        context,
        member.name.clone(),
        Arc::clone(&shared),
        orders.clone(),
    );
    tokio::spawn(serving.run(seen));
    Ok(Some(Node { orders, shared }))
}

impl Node {
    /// Takes no more shards: the server stops.
    pub(crate) fn take_no_more(&self) {
        self.shared.takes_more.store(false, Ordering::Release);
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
