//! A model of a cluster: the control tables, nodes that beat, stand still, die and are drained, and the shards that
//! they own in turn. What judges beats and places shards is the product's; the statements and the tasks of a node are
//! modelled. It must never answer a read with something that is out of date, and settle once nothing fails any more.

mod node;
mod tables;

use std::collections::BTreeMap;
use std::time::Duration;

use node::{Node, Slot};
use tables::{Answer, Fence, Place, Row, Statement, Tables, node_of};

/// Number of nodes in the model; it has as many shards.
const NODES: usize = 3;
const SHARDS: u32 = 3;
const LEASE: Duration = Duration::from_secs(2);
/// Microseconds of a run in which everything may fail, and after it.
const TROUBLE: u64 = 40_000_000;
const QUIET: u64 = 15_000_000;
/// Microseconds after which a shard that nobody has taken is taken back.
const TAKE_BACK_AFTER: u64 = 1_000_000;

/// What a node does wrong in a run, to prove that the model finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// Reads are answered without a look at the ownership.
    ReadsAtAnyTime,
    /// The ownership is counted from the end of a beat.
    CountsFromTheEnd,
    /// The ownership is taken to last a quarter longer than the lease.
    OutlastsTheLease,
    /// A shard that is placed on a node is served there, also if another one holds it.
    ObeysThePlan,
    /// A shard is taken back from a node that holds it.
    TakesBackFromAnybody,
    /// A shard is served once it is claimed, though its node may have lost it while it waited for the claim.
    ServesAtOnce,
    /// A shard that was lost and taken again in one beat is served on, as if it had not been lost.
    ForgetsTheLoss,
    /// A node that has beaten meanwhile is taken for dead.
    ForgetsTheBeat,
}

/// A source of numbers that are the same for the same seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn node(&mut self) -> usize {
        usize::try_from(self.below(3)).expect("few")
    }

    fn shard(&mut self) -> u32 {
        1 + u32::try_from(self.below(u64::from(SHARDS))).expect("few")
    }
}

#[derive(Clone, Debug)]
enum Event {
    Beat,
    Answer(Statement, Answer),
    /// Requests in progress at a shard that leaves are answered.
    Closed(u32),
    TakenByNow(u32, usize),
    /// A read is answered: what it says, and the commits that were acknowledged when it began.
    Read(u32, u64, u64),
}

enum Happening {
    Execute(usize, u64, Statement),
    AtNode(usize, u64, Event),
    Trouble,
}

struct Cluster {
    planted: Planted,
    rng: Rng,
    now: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    tables: Tables,
    nodes: Vec<Node>,
    reads: u64,
    moves: u64,
    taken_back: u64,
    broken: Option<String>,
}

impl Cluster {
    fn new(seed: u64, planted: Planted) -> Self {
        let mut rng = Rng(seed);
        let nodes = (0..NODES).map(|node| Node::new(node, 1, rng.below(49_000)));
        let mut cluster = Self {
            planted,
            nodes: nodes.collect(),
            rng,
            now: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            tables: Tables {
                version: 0,
                rows: BTreeMap::new(),
                places: (1..=SHARDS).map(|it| (it, Place::default())).collect(),
                fences: (1..=SHARDS).map(|it| (it, Fence::default())).collect(),
            },
            reads: 0,
            moves: 0,
            taken_back: 0,
            broken: None,
        };
        for node in 0..NODES {
            cluster.later(node, 1_000, Event::Beat);
        }
        cluster.push(1_000, Happening::Trouble);
        cluster
    }

    fn push(&mut self, after: u64, what: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now + after, self.sequence), what);
    }

    fn later(&mut self, node: usize, after: u64, event: Event) {
        let process = self.nodes[node].incarnation;
        self.push(after, Happening::AtNode(node, process, event));
    }

    fn send(&mut self, node: usize, statement: Statement) {
        let process = self.nodes[node].incarnation;
        let slow = if self.is_quiet() || !self.rng.one_in(40) {
            3_000
        } else {
            1_500_000
        };
        if let Statement::Store(_, judgement) = &statement {
            // A node that is taken for dead may beat at this moment.
            let dead = judgement.dead.iter().filter_map(|(name, ..)| node_of(name));
            for node in dead.collect::<Vec<_>>() {
                self.nodes[node].still_until = 0;
                self.later(node, 1, Event::Beat);
            }
        }
        self.may_stand_still(node, 150);
        let after = 200 + self.rng.below(slow);
        self.push(after, Happening::Execute(node, process, statement));
    }

    fn is_quiet(&self) -> bool {
        self.now >= TROUBLE
    }

    fn run(&mut self) {
        while let Some(((time, _), what)) = self.queue.pop_first() {
            self.now = time;
            match what {
                Happening::Trouble => self.trouble(),
                Happening::Execute(node, process, statement) => {
                    self.execute(node, process, statement);
                }
                Happening::AtNode(node, process, event) => self.at_node(node, process, event),
            }
            // Shards may still move for balance, one every five seconds.
            let is_end = self.now >= TROUBLE + QUIET;
            if self.broken.is_some() || is_end && self.ownerless().is_none() {
                return;
            }
            if self.now > TROUBLE + 2 * QUIET {
                break;
            }
        }
        self.broken = self.ownerless();
    }

    /// Something goes wrong, or somebody asks for something.
    fn trouble(&mut self) {
        let after = 1 + self.rng.below(20_000);
        self.push(after, Happening::Trouble);
        let (node, shard) = (self.rng.node(), self.rng.shard());
        match self.rng.below(200) {
            0 if !self.is_quiet() => {
                let next = Node::new(
                    node,
                    self.nodes[node].incarnation + 1,
                    self.nodes[node].drift,
                );
                self.nodes[node] = next;
                let after = self.rng.below(3_000_000);
                self.later(node, after, Event::Beat);
            }
            1..=3 => {
                // In the end nobody drains.
                let is_draining = !self.is_quiet() && self.rng.one_in(2);
                if let Some(row) = self.tables.rows.get_mut(&node) {
                    row.is_draining = is_draining;
                }
            }
            4..=60 => {
                if let Some(Slot::Open { epoch, .. }) = self.nodes[node].slots.get(&shard) {
                    let statement = Statement::Commit(shard, *epoch);
                    self.send(node, statement);
                }
            }
            _ => self.read(node, shard),
        }
    }

    fn read(&mut self, node: usize, shard: u32) {
        let this = &self.nodes[node];
        if this.still_until > self.now {
            return;
        }
        if let Some(Slot::Open { commits, .. }) = this.slots.get(&shard) {
            let acknowledged = self.tables.fences[&shard].acknowledged;
            let event = Event::Read(shard, *commits, acknowledged);
            let after = self.rng.below(3_000);
            self.later(node, after, event);
            self.may_stand_still(node, 50);
        }
    }

    /// Lets a node stand still from now on, once in so many times: at moments at which that may hurt.
    fn may_stand_still(&mut self, node: usize, one_in: u64) {
        if !self.is_quiet() && self.rng.one_in(one_in) {
            let time = self.rng.below(5_000_000);
            self.nodes[node].still_until = self.now + time;
        }
    }

    fn execute(&mut self, node: usize, process: u64, statement: Statement) {
        let is_lost = !self.is_quiet() && self.rng.one_in(60);
        let answer = if is_lost && self.rng.one_in(2) {
            Answer::Lost
        } else {
            let answer = self.executed(node, process, &statement);
            if is_lost { Answer::Lost } else { answer }
        };
        let after = 200 + self.rng.below(3_000);
        let event = Event::Answer(statement, answer);
        self.push(after, Happening::AtNode(node, process, event));
    }

    fn executed(&mut self, node: usize, process: u64, statement: &Statement) -> Answer {
        let (now, planted, tables) = (self.now, self.planted, &mut self.tables);
        match statement {
            Statement::Raise => {
                let new = Row {
                    incarnation: process,
                    beat: 0,
                    since: now,
                    at: now,
                    is_draining: false,
                };
                let row = tables.rows.entry(node).or_insert_with(|| new.clone());
                if row.incarnation > process {
                    return Answer::NameTaken;
                }
                if row.incarnation < process {
                    *row = new;
                }
                (row.beat, row.at) = (row.beat + 1, now);
                Answer::Done
            }
            Statement::Look => Answer::Table(Box::new(tables.look(now))),
            Statement::Store(version, judgement) => {
                let moved = judgement.moved();
                tables.store(now, *version, judgement, planted);
                self.moves += moved;
                Answer::Done
            }
            Statement::Hold(shard, placed) => {
                let place = tables.places.get_mut(shard).expect("a shard");
                let takes = planted == Planted::TakesBackFromAnybody && *placed != Some(node);
                if place.node == *placed && (place.holder.is_none() || takes) {
                    self.taken_back += u64::from(*placed != Some(node));
                    place.holder = Some((node, process));
                    return Answer::Held;
                }
                Answer::Done
            }
            Statement::Release(shard, next) => {
                let place = tables.places.get_mut(shard).expect("a shard");
                if next.is_some() && place.holder == Some((node, process)) {
                    tables.version += 1;
                    if place.node == Some(node) {
                        place.node = *next;
                    }
                }
                place.holder = place.holder.filter(|holder| *holder != (node, process));
                Answer::Done
            }
            Statement::Claim(shard) => {
                let fence = tables.fences.get_mut(shard).expect("a shard");
                fence.epoch += 1;
                Answer::Claimed(fence.epoch, fence.commits)
            }
            Statement::Commit(shard, epoch) => {
                let fence = tables.fences.get_mut(shard).expect("a shard");
                if fence.epoch != *epoch {
                    return Answer::Fenced;
                }
                fence.commits += 1;
                Answer::Committed(fence.commits)
            }
        }
    }

    fn at_node(&mut self, node: usize, process: u64, event: Event) {
        if self.nodes[node].incarnation != process {
            return;
        }
        let still = self.nodes[node].still_until.saturating_sub(self.now);
        if still > 0 {
            return self.later(node, still, event);
        }
        match event {
            Event::Beat => self.beat(node),
            Event::Answer(statement, answer) => self.answered(node, &statement, answer),
            Event::Closed(shard) => {
                let this = &mut self.nodes[node];
                this.slots.remove(&shard);
                this.orders.push((shard, false));
                self.wake(node);
                // The next beat shows it released; then the other node is told, and has this time.
                if let Some(placed) = self.tables.places[&shard].node {
                    self.later(node, TAKE_BACK_AFTER, Event::TakenByNow(shard, placed));
                }
            }
            Event::TakenByNow(shard, taker) => self.take_back(node, shard, taker),
            Event::Read(shard, commits, acknowledged) => {
                let this = &self.nodes[node];
                let is_sure = match self.planted {
                    Planted::ReadsAtAnyTime => true,
                    _ => this.is_sure(shard, this.clock(self.now)),
                };
                if is_sure {
                    self.reads += 1;
                    if commits < acknowledged {
                        self.broken = Some(format!(
                            "{} us: node {node} answers with {commits} of {acknowledged} commits of shard {shard}",
                            self.now
                        ));
                    }
                }
            }
        }
    }

    /// Says which shard has no owner, or more than one, whose claim is the last one; `None` if all have one.
    fn ownerless(&self) -> Option<String> {
        let mut fences = self.tables.fences.iter();
        let found = fences.find(|(shard, fence)| {
            let owners = self.nodes.iter().filter(|node| {
                let slot = node.slots.get(shard);
                matches!(slot, Some(Slot::Open { epoch, .. }) if *epoch == fence.epoch)
            });
            owners.count() != 1
        });
        found.map(|(shard, _)| format!("shard {shard} has no owner in the end"))
    }
}

/// Returns what is wrong in a run, and what happened in it.
fn run(seed: u64, planted: Planted) -> Cluster {
    let mut cluster = Cluster::new(seed, planted);
    cluster.run();
    cluster
}

/// Runs of the model in one test.
const RUNS: u64 = 400;

#[test]
fn no_answer_is_out_of_date_and_every_shard_has_an_owner_in_the_end() {
    let (mut reads, mut moves, mut taken_back) = (0, 0, 0);
    for seed in 0..RUNS {
        let cluster = run(seed, Planted::Nothing);
        assert_eq!(cluster.broken, None, "seed {seed}");
        reads += cluster.reads;
        moves += cluster.moves;
        taken_back += cluster.taken_back;
    }
    assert!(
        reads > RUNS && moves > RUNS && taken_back > RUNS / 10,
        "{reads} {moves} {taken_back}"
    );
}

#[test]
fn the_model_finds_planted_faults() {
    // With the run that finds it first: another one does if that changes.
    for (planted, first) in [
        (Planted::ReadsAtAnyTime, 3),
        (Planted::CountsFromTheEnd, 7),
        (Planted::OutlastsTheLease, 9),
        (Planted::ObeysThePlan, 4),
        (Planted::TakesBackFromAnybody, 683),
        (Planted::ServesAtOnce, 72),
        (Planted::ForgetsTheLoss, 453),
        (Planted::ForgetsTheBeat, 257),
    ] {
        let is_stale = |seed: &u64| {
            let broken = run(*seed, planted).broken;
            broken.is_some_and(|broken| broken.contains("answers with"))
        };
        let found = (first..first + 10 * RUNS).find(is_stale);
        eprintln!("{planted:?}: found by seed {found:?}");
        assert!(found.is_some(), "{planted:?} is not found");
    }
}
