//! A node of the model: the thread that beats, and the task that opens and closes shards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::judge::{Table, Watches};
use super::super::{BEAT_EVERY, NodeName};
use super::tables::{Answer, Statement, incarnation, name_of, node_of, placed_on};
use super::{Cluster, Event, LEASE, Planted, SHARDS};
use crate::formats::Formats;

/// What a node has of a shard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Slot {
    Opening,
    /// Claimed at this time, and not served before a beat that began later says that the node holds it.
    Claimed {
        epoch: u64,
        commits: u64,
        at: Duration,
    },
    Open {
        epoch: u64,
        commits: u64,
    },
    Closing,
}

/// Where the thread that beats is.
#[derive(Clone, Debug)]
pub(super) enum Thread {
    Idle,
    Raising,
    Looking,
    Storing,
    LookingAgain,
    Holding(Vec<u32>),
    Releasing(u32),
}

/// A node, and its process.
pub(super) struct Node {
    pub(super) incarnation: u64,
    /// Millionths by which its clock is fast.
    pub(super) drift: u64,
    pub(super) still_until: u64,
    pub(super) watches: Watches,
    pub(super) thread: Thread,
    pub(super) sent: Duration,
    pub(super) before: Duration,
    pub(super) table: Option<Table>,
    /// Shards that are to be released, and whether another node is to try.
    pub(super) orders: Vec<(u32, bool)>,
    pub(super) unreleased: BTreeSet<u32>,
    pub(super) slots: BTreeMap<u32, Slot>,
    /// Numbers of times that each shard was taken, now and when it was opened.
    pub(super) times_taken: BTreeMap<u32, u64>,
    pub(super) opened_at: BTreeMap<u32, u64>,
    pub(super) ours: BTreeSet<u32>,
    /// Time until which its shards are surely its own.
    pub(super) until: Duration,
    pub(super) kept: BTreeMap<u32, (usize, Duration)>,
    pub(super) refused: BTreeMap<u32, Duration>,
}

impl Node {
    pub(super) fn new(node: usize, incarnation: u64, drift: u64) -> Self {
        Self {
            incarnation,
            drift,
            still_until: 0,
            watches: Watches::new(&name_of(node)),
            thread: Thread::Idle,
            sent: Duration::ZERO,
            before: Duration::ZERO,
            table: None,
            orders: Vec::new(),
            unreleased: BTreeSet::new(),
            slots: BTreeMap::new(),
            times_taken: BTreeMap::new(),
            opened_at: BTreeMap::new(),
            ours: BTreeSet::new(),
            until: Duration::ZERO,
            kept: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    pub(super) fn clock(&self, now: u64) -> Duration {
        Duration::from_micros(1_000_000_000 + now + now / 1_000_000 * self.drift)
    }

    pub(super) fn keeps(&self, shard: u32, placed: Option<usize>, clock: Duration) -> bool {
        let kept = self.kept.get(&shard);
        kept.is_some_and(|(node, until)| Some(*node) == placed && clock < *until)
    }

    pub(super) fn may_hold(&self, shard: u32, clock: Duration) -> bool {
        !self.unreleased.contains(&shard)
            && self.refused.get(&shard).is_none_or(|until| clock >= *until)
    }

    pub(super) fn is_sure(&self, shard: u32, clock: Duration) -> bool {
        self.ours.contains(&shard) && clock < self.until && self.is_current(shard)
    }

    /// Whether the node has had the shard without a break since it opened it.
    pub(super) fn is_current(&self, shard: u32) -> bool {
        let taken = self.times_taken.get(&shard).copied().unwrap_or(0);
        self.opened_at.get(&shard) == Some(&taken)
    }
}

impl Cluster {
    /// Lets the thread do its orders, if it sleeps.
    pub(super) fn wake(&mut self, node: usize) {
        if matches!(self.nodes[node].thread, Thread::Idle) {
            self.obey(node);
        }
    }

    pub(super) fn beat(&mut self, node: usize) {
        if !matches!(self.nodes[node].thread, Thread::Idle) {
            return;
        }
        let this = &mut self.nodes[node];
        this.sent = this.clock(self.now);
        this.before = this.sent;
        this.thread = Thread::Raising;
        self.send(node, Statement::Raise);
    }

    /// Does an order, or sleeps until the next beat.
    pub(super) fn obey(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        let unreleased = this.unreleased.pop_first().map(|shard| (shard, false));
        if let Some((shard, is_given_up)) = unreleased.or_else(|| this.orders.pop()) {
            this.thread = Thread::Releasing(shard);
            let nodes = this.table.as_ref().map_or(&[][..], |table| &table.nodes);
            let next = this.watches.next_node(nodes).and_then(node_of);
            let release = Statement::Release(shard, next.filter(|_| is_given_up));
            return self.send(node, release);
        }
        this.thread = Thread::Idle;
        let every = u64::try_from(BEAT_EVERY.as_micros()).expect("short");
        let after = self.rng.below(every);
        self.later(node, after, Event::Beat);
    }

    pub(super) fn answered(&mut self, node: usize, statement: &Statement, answer: Answer) {
        match statement {
            Statement::Claim(shard) => return self.claimed(node, *shard, &answer),
            Statement::Commit(shard, epoch) => {
                return self.committed(node, *shard, *epoch, &answer);
            }
            _ => {}
        }
        let clock = self.nodes[node].clock(self.now);
        let thread = self.nodes[node].thread.clone();
        if matches!(answer, Answer::Lost | Answer::NameTaken) {
            if let Thread::Releasing(shard) = thread {
                self.nodes[node].unreleased.insert(shard);
            }
            self.nodes[node].thread = Thread::Idle;
            return self.later(node, 300_000, Event::Beat);
        }
        match (thread, answer) {
            (Thread::Raising, _) => {
                self.nodes[node].thread = Thread::Looking;
                self.send(node, Statement::Look);
            }
            (Thread::Looking, Answer::Table(table)) => {
                let this = &mut self.nodes[node];
                this.watches.look(&table.nodes, this.before, clock);
                let judgement = this.watches.judge(&table);
                let version = table.version;
                this.table = Some(*table);
                if judgement.changes.is_empty() {
                    self.hold(node);
                } else {
                    this.thread = Thread::Storing;
                    self.send(node, Statement::Store(version, Box::new(judgement)));
                }
            }
            (Thread::Storing, _) => {
                self.nodes[node].thread = Thread::LookingAgain;
                self.send(node, Statement::Look);
            }
            (Thread::LookingAgain, Answer::Table(table)) => {
                self.nodes[node].table = Some(*table);
                self.hold(node);
            }
            (Thread::Holding(left), answer) => {
                let this = &mut self.nodes[node];
                let process = incarnation(node, this.incarnation);
                let places = this.table.iter_mut().flat_map(|table| &mut table.places);
                if let (Statement::Hold(shard, _), Answer::Held) = (statement, answer) {
                    for place in places.filter(|place| place.number == *shard) {
                        (place.holder, place.incarnation) = (name_of(node), process.clone());
                        place.is_new = true;
                    }
                }
                self.hold_next(node, left);
            }
            (Thread::Releasing(_), _) => {
                self.nodes[node].thread = Thread::Idle;
                if self.nodes[node].orders.is_empty() {
                    self.beat(node);
                } else {
                    self.obey(node);
                }
            }
            (thread, answer) => panic!("{thread:?}: {answer:?}"),
        }
    }

    pub(super) fn hold(&mut self, node: usize) {
        let this = &self.nodes[node];
        let (clock, table) = (
            this.clock(self.now),
            this.table.as_ref().expect("it has looked"),
        );
        let free = table.places.iter().filter(|place| {
            let placed = node_of(&place.node);
            let may_hold = if placed == Some(node) {
                this.may_hold(place.number, clock)
            } else {
                this.keeps(place.number, placed, clock) && !this.unreleased.contains(&place.number)
            };
            let takes = self.planted == Planted::TakesBackFromAnybody && placed != Some(node);
            (place.holder.is_empty() || takes) && may_hold
        });
        let free = free.map(|place| place.number).collect();
        self.hold_next(node, free);
    }

    pub(super) fn hold_next(&mut self, node: usize, mut left: Vec<u32>) {
        if let Some(shard) = left.pop() {
            let table = self.nodes[node].table.as_ref().expect("it has looked");
            let placed = placed_on(table, shard);
            self.nodes[node].thread = Thread::Holding(left);
            return self.send(node, Statement::Hold(shard, placed));
        }
        let process = incarnation(node, self.nodes[node].incarnation);
        self.confirm(node, &process);
        self.settle(node);
        self.obey(node);
    }

    /// Notes which shards are surely its own.
    pub(super) fn confirm(&mut self, node: usize, process: &str) {
        let name = NodeName {
            node: name_of(node),
            incarnation: process.to_owned(),
            address: String::new(),
            version: String::new(),
            formats: Formats::OWN,
            lease: LEASE,
        };
        let planted = self.planted;
        let this = &mut self.nodes[node];
        this.until = match planted {
            Planted::CountsFromTheEnd => this.clock(self.now) + name.sure_for(),
            Planted::OutlastsTheLease => this.sent + LEASE + LEASE / 4,
            _ => this.sent + name.sure_for(),
        };
        let seen = this.table.as_ref().expect("it has looked");
        let ours = seen.places.iter();
        let ours = ours.filter(|place| place.incarnation == process);
        this.ours = ours.map(|place| place.number).collect();
        if planted != Planted::ForgetsTheLoss {
            for place in seen.places.iter().filter(|place| place.is_new) {
                *this.times_taken.entry(place.number).or_default() += 1;
            }
        }
        if planted == Planted::ObeysThePlan {
            let placed = seen
                .places
                .iter()
                .filter(|place| node_of(&place.node) == Some(node));
            this.ours.extend(placed.map(|place| place.number));
        }
    }

    /// Opens and closes shards, as the task of the product does.
    pub(super) fn settle(&mut self, node: usize) {
        for shard in 1..=SHARDS {
            let this = &mut self.nodes[node];
            let clock = this.clock(self.now);
            let seen = this.table.as_ref().expect("it has looked");
            let placed = placed_on(seen, shard);
            let is_ours = this.ours.contains(&shard);
            let is_kept = placed != Some(node) && this.keeps(shard, placed, clock);
            let is_placed = is_ours && (placed == Some(node) || is_kept);
            let is_current = this.is_current(shard);
            match this.slots.get(&shard) {
                None if is_placed && (is_kept || this.may_hold(shard, clock)) => {
                    this.slots.insert(shard, Slot::Opening);
                    let times = this.times_taken.get(&shard).copied().unwrap_or(0);
                    this.opened_at.insert(shard, times);
                    self.send(node, Statement::Claim(shard));
                }
                None if is_ours => this.orders.push((shard, false)),
                Some(Slot::Claimed { .. } | Slot::Open { .. }) if !is_current => {
                    this.slots.insert(shard, Slot::Closing);
                    self.later(node, 1, Event::Closed(shard));
                }
                Some(Slot::Claimed { epoch, commits, at }) if is_placed && this.sent >= *at => {
                    let (epoch, commits) = (*epoch, *commits);
                    this.slots.insert(shard, Slot::Open { epoch, commits });
                }
                Some(Slot::Claimed { at, .. }) if this.sent >= *at => {
                    this.slots.insert(shard, Slot::Closing);
                    self.later(node, 1, Event::Closed(shard));
                }
                Some(Slot::Open { .. }) if !is_placed => {
                    this.slots.insert(shard, Slot::Closing);
                    let wait = if is_ours { 200_000 } else { 1 };
                    let after = self.rng.below(wait);
                    self.later(node, after, Event::Closed(shard));
                }
                _ => {}
            }
        }
    }

    pub(super) fn take_back(&mut self, node: usize, shard: u32, taker: usize) {
        let is_planted = self.planted == Planted::TakesBackFromAnybody;
        let this = &mut self.nodes[node];
        let Some(table) = &this.table else {
            return;
        };
        let mut places = table.places.iter();
        let place = places.find(|place| place.number == shard).expect("a shard");
        let is_free = place.holder.is_empty() || is_planted;
        let is_untaken = node_of(&place.node) == Some(taker) && is_free && taker != node;
        if is_untaken && !this.slots.contains_key(&shard) {
            let until = this.clock(self.now) + LEASE;
            this.kept.insert(shard, (taker, until));
        }
    }

    pub(super) fn claimed(&mut self, node: usize, shard: u32, answer: &Answer) {
        let this = &mut self.nodes[node];
        let Answer::Claimed(epoch, commits) = answer else {
            return self.drop_slot(node, shard);
        };
        let (epoch, commits, at) = (*epoch, *commits, this.clock(self.now));
        let claimed = Slot::Claimed { epoch, commits, at };
        this.slots.insert(shard, claimed);
        if self.planted == Planted::ServesAtOnce {
            this.slots.insert(shard, Slot::Open { epoch, commits });
        } else if matches!(this.thread, Thread::Idle) {
            self.beat(node);
        }
    }

    pub(super) fn committed(&mut self, node: usize, shard: u32, ours: u64, answer: &Answer) {
        let this = &mut self.nodes[node];
        let Some(Slot::Open { epoch, commits }) = this.slots.get_mut(&shard) else {
            return;
        };
        if *epoch != ours {
            return;
        }
        match answer {
            Answer::Committed(now) => {
                *commits = (*commits).max(*now);
                let fence = self.tables.fences.get_mut(&shard).expect("a shard");
                fence.acknowledged = fence.acknowledged.max(*now);
            }
            // After an unknown outcome the product takes the shard again; here it gives it up.
            _ => self.drop_slot(node, shard),
        }
    }

    pub(super) fn drop_slot(&mut self, node: usize, shard: u32) {
        let this = &mut self.nodes[node];
        this.slots.remove(&shard);
        let until = this.clock(self.now) + LEASE;
        this.refused.insert(shard, until);
        this.kept.remove(&shard);
        this.orders.push((shard, true));
        self.wake(node);
    }
}
