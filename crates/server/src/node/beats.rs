//! The thread that beats.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ganger_shard::{Clock as _, StopCause, SystemClock};
use ganger_store::{Line, RepeatedWarning, StoreError};
use ganger_store_postgres::{
    BEAT_EVERY, BeatError, Database, DatabaseAges, Directory, Holds, Member, Seen,
};
use ganger_types::{Elapsed, ShardId};
use tokio::sync::watch;

use super::{Order, Shared};
use crate::shards::FirstEnded;

/// Beats between two looks at what only people see: the epochs of the shards, and the ages in the database.
const LOOK_EVERY: u64 = 10;

/// State of the thread.
pub(super) struct Beats {
    pub(super) member: Member,
    pub(super) database: Arc<Database>,
    pub(super) shared: Arc<Shared>,
    pub(super) ordered: Receiver<Order>,
    /// What the last beat saw; `None` before the first.
    pub(super) seen: watch::Sender<Option<Arc<Seen>>>,
    pub(super) ended: FirstEnded,
    /// The shard of requests that name none.
    pub(super) home: ShardId,
    /// Shards that could not be released yet.
    pub(super) unreleased: BTreeSet<u32>,
    /// The thread that looked at the ages in the database last.
    pub(super) ages: Option<JoinHandle<()>>,
}

/// Which shards the node may hold: none that it could not release yet.
struct MayHold<'a> {
    shared: &'a Shared,
    unreleased: &'a BTreeSet<u32>,
}

impl Holds for MayHold<'_> {
    fn may_hold(&self, shard: u32) -> bool {
        !self.unreleased.contains(&shard) && self.shared.may_hold(shard)
    }

    fn keeps(&self, shard: u32, placed: &str) -> bool {
        !self.unreleased.contains(&shard) && self.shared.keeps(shard, placed)
    }
}

impl Beats {
    /// Beats until the node leaves.
    pub(super) fn run(mut self) {
        let began = SystemClock.monotonic();
        let (mut warning, mut beats) = (RepeatedWarning::default(), 0);
        loop {
            let sent = SystemClock.monotonic();
            match self.beat(sent, beats % LOOK_EVERY == 0) {
                Ok(()) => beats += 1,
                Err(error @ (BeatError::NameTaken(_) | BeatError::FormatTooNew { .. })) => {
                    return self.end(&error);
                }
                Err(BeatError::Store(error)) => {
                    self.shared.counters.missed.fetch_add(1, Ordering::Relaxed);
                    self.check_ready();
                    let at = Elapsed::default().after(sent.saturating_sub(began));
                    log(warning.occur(at), &error);
                }
            }
            if self.obey_until(sent + BEAT_EVERY) {
                return;
            }
        }
    }

    fn beat(&mut self, sent: Duration, looks: bool) -> Result<(), BeatError> {
        let released: Vec<u32> = self.unreleased.iter().copied().collect();
        for shard in released {
            self.release(shard);
        }
        let shared = Arc::clone(&self.shared);
        let clock = || SystemClock.monotonic();
        let holds = MayHold {
            shared: &shared,
            unreleased: &self.unreleased,
        };
        let seen = self.member.beat(&clock, &holds)?;
        let sure_for = self.member.name().sure_for();
        self.shared.confirm(&seen, sent + sure_for);
        let counters = &self.shared.counters;
        counters
            .taken_over
            .fetch_add(seen.taken_over, Ordering::Relaxed);
        counters.moved.fetch_add(seen.moved, Ordering::Relaxed);
        if seen.taken_over > 0 {
            tracing::warn!(
                shards = seen.taken_over,
                "shards are taken from a dead node"
            );
        }
        self.shared.counters.confirmed(sent);
        if looks {
            self.read_epochs();
            self.look_at_ages();
        }
        self.seen.send_replace(Some(Arc::new(seen)));
        Ok(())
    }

    /// Looks at the ages in the database on a thread of its own: no beat waits for that. At most one looks at a time.
    fn look_at_ages(&mut self) {
        if self.ages.as_ref().is_some_and(|look| !look.is_finished()) {
            return;
        }
        let (database, counters) = (
            Arc::clone(&self.database),
            Arc::clone(&self.shared.counters),
        );
        let look = move || match DatabaseAges::read(&database) {
            Ok(ages) => counters.aged(ages),
            Err(error) => tracing::debug!(%error, "the ages in the database cannot be read"),
        };
        let thread = thread::Builder::new().name("ganger-ages".to_owned());
        self.ages = thread.spawn(look).ok();
    }

    fn read_epochs(&self) {
        // Shards may have been added.
        let directory = Directory::read(&self.database);
        match directory.and_then(|directory| directory.status(&self.database)) {
            Ok(status) => {
                let epochs = status.iter().map(|shard| (shard.number, shard.epoch));
                let closed = status.iter().filter(|shard| !shard.is_open());
                let mut held = self.shared.held();
                held.epochs = epochs.collect();
                held.closed = closed.map(|it| (it.number, it.state.clone())).collect();
            }
            Err(error) => tracing::debug!(%error, "the epochs of the shards cannot be read"),
        }
    }

    /// Does what is ordered until a time, or until an order needs a beat; returns whether the node has left.
    fn obey_until(&mut self, time: Duration) -> bool {
        let left = time.saturating_sub(SystemClock.monotonic());
        let mut order = match self.ordered.recv_timeout(left) {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        };
        loop {
            match order {
                Order::Release(shard) => self.release(shard),
                Order::GiveUp(shard) => self.give_up(shard),
                Order::Beat => {}
                Order::Drain => {
                    if let Err(error) = self.member.drain() {
                        tracing::warn!(%error, "other nodes take the shards over only when this one has stopped");
                    }
                }
                Order::Leave(left) => {
                    if let Err(error) = self.member.leave() {
                        tracing::warn!(%error, "other nodes wait for the lease before they take the shards over");
                    }
                    // Nobody may wait for it any more.
                    let _ = left.send(());
                    return true;
                }
            }
            // One beat is enough for several orders.
            match self.ordered.try_recv() {
                Ok(next) => order = next,
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    fn release(&mut self, shard: u32) {
        match self.member.release(shard) {
            Ok(()) => drop(self.unreleased.remove(&shard)),
            Err(error) => {
                tracing::debug!(shard, %error, "the shard is released later");
                self.unreleased.insert(shard);
            }
        }
    }

    /// Gives a shard up that failed here, for another node to try.
    fn give_up(&mut self, shard: u32) {
        if let Err(error) = self.member.give_up(shard) {
            tracing::debug!(shard, %error, "the shard is released later");
            self.unreleased.insert(shard);
        }
    }

    /// Notes that the node is not ready once it is not sure of its shards.
    fn check_ready(&self) {
        if SystemClock.monotonic() >= self.shared.held().until {
            self.shared.owners.change(|state| state.is_ready = false);
        }
    }

    /// Ends the process: it can be no node of this cluster.
    fn end(&self, error: &BeatError) {
        let cause = StopCause::Fenced {
            reason: error.to_string(),
        };
        self.ended.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert_with(|| (self.home.clone(), cause));
            is_first
        });
    }
}

fn log(line: Option<Line>, error: &StoreError) {
    match line {
        Some(Line::First) => tracing::error!(%error, "a beat of this node failed"),
        Some(Line::Again { times }) => {
            tracing::error!(%error, times, "beats of this node still fail");
        }
        None => {}
    }
}
