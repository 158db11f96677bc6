//! Numbers of a node, for the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ganger_metrics::{Distribution, Exposition, Source};
use ganger_router::Owners;
use ganger_shard::{Clock as _, SystemClock};
use ganger_store_postgres::DatabaseAges;

use super::marks::Marks;

/// Bounds of the times of hand-overs, in microseconds.
const PAUSE_BOUNDS: &[u64] = &[
    10_000, 25_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
];

/// Numbers of this node, for the metrics.
#[derive(Debug)]
pub(crate) struct NodeCounters {
    /// Shards that this node took from dead nodes, for itself or others.
    pub(super) taken_over: AtomicU64,
    /// Shards that this node moved from one live node to another.
    pub(super) moved: AtomicU64,
    /// Beats that failed since the start.
    pub(super) missed: AtomicU64,
    /// When the last confirmed beat was sent, in microseconds of the monotonic clock; 0 before the first.
    beat_at: AtomicU64,
    /// Ages in the database: of the oldest snapshot, transaction and multixact.
    ages: [AtomicU64; 3],
    /// Shards that this node began to open, because they are placed here, and because their next nodes did not take them.
    pub(super) claims: [AtomicU64; 2],
    /// Shards that failed here and were given up.
    pub(super) failed: AtomicU64,
    /// Shards that this node lost to others without having given them up.
    pub(super) lost: AtomicU64,
    /// Shards handed over that no other node served in time, as far as this node knows.
    late: AtomicU64,
    /// Times from the last request here to the first one at the other node.
    pauses: Distribution,
}

impl Default for NodeCounters {
    fn default() -> Self {
        Self {
            taken_over: AtomicU64::default(),
            moved: AtomicU64::default(),
            missed: AtomicU64::default(),
            beat_at: AtomicU64::default(),
            ages: Default::default(),
            claims: Default::default(),
            failed: AtomicU64::default(),
            lost: AtomicU64::default(),
            late: AtomicU64::default(),
            pauses: Distribution::times(PAUSE_BOUNDS),
        }
    }
}

impl NodeCounters {
    /// Notes when a beat was sent that was confirmed.
    pub(super) fn confirmed(&self, sent: Duration) {
        let micros = u64::try_from(sent.as_micros()).unwrap_or(u64::MAX);
        self.beat_at.store(micros, Ordering::Relaxed);
    }

    /// Notes the ages in the database.
    pub(super) fn aged(&self, ages: DatabaseAges) {
        let ages = [ages.snapshot, ages.transaction, ages.multixact];
        for (shown, age) in self.ages.iter().zip(ages) {
            shown.store(age, Ordering::Relaxed);
        }
    }

    /// Counts a shard that was handed over; `pause` is `None` if the other node did not serve it in time.
    pub(super) fn handed_over(&self, pause: Option<Duration>) {
        match pause {
            Some(pause) => self.pauses.observe_time(pause),
            None => drop(self.late.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Returns the metrics of the node.
    pub(crate) fn source(self: &Arc<Self>, owners: &Owners, marks: &Arc<Marks>) -> Source {
        let (counters, owners, marks) = (Arc::clone(self), owners.clone(), Arc::clone(marks));
        Arc::new(move |out| {
            Self::write_shards(&owners, out);
            counters.write_database(out);
            counters.write_counters(out);
            let help = "Newest commit of a shard that this node knows to be confirmed.";
            let mut gauge = out.gauge("ganger_cluster_confirmed_commits", help);
            for (shard, mark) in marks.all() {
                gauge.sample(&[("shard", shard.as_str())], mark.sequence);
            }
        })
    }

    fn write_shards(owners: &Owners, out: &mut Exposition) {
        let state = owners.now();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let alive = state.nodes.iter().filter(|node| node.is_live).count();
        let own = |owner: &Option<String>| owner.as_deref() == Some(&state.node);
        let owned = state.shards.iter().filter(|it| own(&it.owner)).count();
        let unowned = state.shards.iter().filter(|it| it.owner.is_none()).count();
        let closed = state.shards.iter().filter(|it| it.closed.is_some()).count();
        for (name, help, number) in [
            (
                "ganger_cluster_shards_closed",
                "Shards that no node may own before an operator acts, such as those that have lost commits.",
                closed,
            ),
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
    }

    fn write_database(&self, out: &mut Exposition) {
        let help = "Seconds since the last beat of this node that the database confirmed was sent.";
        let beat_at = Duration::from_micros(self.beat_at.load(Ordering::Relaxed));
        let since = SystemClock.monotonic().saturating_sub(beat_at);
        out.gauge("ganger_cluster_beat_age_seconds", help)
            .sample(&[], since.as_secs());
        for (name, help, age) in [
            (
                "ganger_cluster_oldest_snapshot_age",
                "Transactions of the database since the oldest snapshot that somebody holds was taken.",
                &self.ages[0],
            ),
            (
                "ganger_cluster_oldest_transaction_age",
                "Transactions of the database since the oldest one in its tables.",
                &self.ages[1],
            ),
            (
                "ganger_cluster_oldest_multixact_age",
                "Multixacts of the database since the oldest one in its tables.",
                &self.ages[2],
            ),
        ] {
            out.gauge(name, help)
                .sample(&[], age.load(Ordering::Relaxed));
        }
    }

    fn write_counters(&self, out: &mut Exposition) {
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
                "ganger_cluster_shards_failed_total",
                "Shards that could not be opened here, or failed here, and were given up.",
                &self.failed,
            ),
            (
                "ganger_cluster_shards_lost_total",
                "Shards that other nodes took from this one.",
                &self.lost,
            ),
            (
                "ganger_cluster_hand_overs_late_total",
                "Shards handed over that the other node did not serve in time.",
                &self.late,
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
        let help = "Shards that this node began to open.";
        let mut claims = out.counter("ganger_cluster_claims_total", help);
        for (why, number) in ["placed", "taken_back"].into_iter().zip(&self.claims) {
            claims.sample(&[("why", why)], number.load(Ordering::Relaxed));
        }
        let help = "Times for which a shard that was handed over answered no request.";
        out.histogram("ganger_cluster_hand_over_seconds", help)
            .sample(&[], &self.pauses.snapshot());
    }
}
