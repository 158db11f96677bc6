//! Everything that two shards can do with three jobs: each state that any order of events leads to is reached,
//! checked, and shown to have a way to an end.
//!
//! Two jobs feed a third, one of them over the border between the shards. Messages are delivered, delivered
//! without the sender hearing of it, so that they come again; jobs are leased, completed, failed, left to
//! expire; the graph is called off once; time passes in three ticks; whoever submitted may vanish before it
//! decides. Between any two events every shard is started anew from its rows, as after a crash.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test says what it has seen; one that unwraps wrongly fails, as it should"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use ganger_engine::{Parts, Spread};
use ganger_types::command::*;
use ganger_types::*;
use support::cluster::{Cluster, shard};
use support::{Rows, World, complete, fail, quick_retries, result_of};

/// Longer than a lease, and than an undecided submission waits.
const TICK: std::time::Duration = secs_const(130);
const TICKS_MAX: u8 = 3;

const fn secs_const(seconds: u64) -> std::time::Duration {
    std::time::Duration::from_secs(seconds)
}

/// A shard as its store has it.
#[derive(Clone)]
struct Stored {
    rows: Rows,
    meta: Meta,
    /// What its worker holds.
    grants: Vec<Grant>,
}

#[derive(Clone)]
struct State {
    shards: BTreeMap<ShardId, Stored>,
    now: Now,
    ticks: u8,
    is_cancelled: bool,
    /// Whether somebody may still decide.
    may_decide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Decide(bool),
    Vanish,
    /// Messages between two shards, all of them or the first; whether the sender hears that they came.
    Deliver {
        from: usize,
        all: bool,
        heard: bool,
    },
    Lease(usize),
    Complete(usize, usize),
    Fail(usize, usize),
    Cancel(usize),
    Tick,
}

const NAMES: [&str; 2] = ["1", "2"];

fn all_steps() -> Vec<Step> {
    let mut steps = vec![
        Step::Decide(true),
        Step::Decide(false),
        Step::Vanish,
        Step::Tick,
    ];
    for place in 0..NAMES.len() {
        for (all, heard) in [(true, true), (true, false), (false, true), (false, false)] {
            let from = place;
            steps.push(Step::Deliver { from, all, heard });
        }
        steps.push(Step::Lease(place));
        steps.push(Step::Cancel(place));
        for held in 0..3 {
            steps.push(Step::Complete(place, held));
            steps.push(Step::Fail(place, held));
        }
    }
    steps
}

struct Scope {
    parts: Parts,
}

impl Scope {
    /// The shards, started from their rows.
    fn load(state: &State) -> Cluster {
        let mut cluster = Cluster {
            shards: BTreeMap::new(),
        };
        for (id, stored) in &state.shards {
            let mut world = World::of_shard(id);
            world.now = state.now;
            world.epoch = 1;
            world.restore(stored.rows.clone(), stored.meta);
            cluster.shards.insert(id.clone(), world);
        }
        cluster
    }

    fn store(cluster: Cluster, before: &State) -> State {
        let mut after = before.clone();
        for (id, world) in cluster.shards {
            let grants = before.shards[&id].grants.clone();
            let stored = Stored {
                meta: world.engine.meta(),
                rows: world.rows,
                grants,
            };
            after.shards.insert(id, stored);
        }
        after
    }

    /// What a step leads to; `None` if it cannot be taken, or changes nothing.
    fn take(&self, state: &State, step: Step) -> Option<State> {
        let mut cluster = Self::load(state);
        let home = |place: usize| shard(NAMES[place]);
        match step {
            Step::Decide(is_committed) => {
                state.may_decide.then_some(())?;
                // An answer of any kind is one.
                let _ = cluster.decide(&self.parts, is_committed);
                let mut after = Self::store(cluster, state);
                after.may_decide = false;
                Some(after)
            }
            Step::Vanish => {
                state.may_decide.then_some(())?;
                let mut after = state.clone();
                after.may_decide = false;
                Some(after)
            }
            Step::Deliver { from, all, heard } => {
                let (from, to) = (home(from), home(1 - from));
                let limit = if all { 100 } else { 1 };
                let letter = cluster.letter(&from, &to, limit);
                if letter.messages.is_empty() {
                    return None;
                }
                let (up_to, stopped) = cluster.deliver(&to, letter);
                assert_eq!(stopped, None, "nobody went back in time");
                if heard {
                    cluster.confirm(&from, &to, up_to);
                }
                Some(Self::store(cluster, state))
            }
            Step::Lease(place) => {
                let grants = cluster.at(&home(place)).lease("w", 1);
                let mut after = Self::store(cluster, state);
                let stored = after.shards.get_mut(&home(place)).unwrap();
                if grants.is_empty() || stored.grants.len() == 3 {
                    return None;
                }
                stored.grants.extend(grants);
                Some(after)
            }
            Step::Complete(place, held) | Step::Fail(place, held) => {
                let id = home(place);
                let grant = state.shards[&id].grants.get(held)?.clone();
                let report = match step {
                    Step::Complete(..) => complete(&grant, "\"done\""),
                    _ => fail(&grant, false),
                };
                // A stale report is refused and changes nothing; its holder lets go.
                let _ = cluster.at(&id).run(report);
                let mut after = Self::store(cluster, state);
                after.shards.get_mut(&id).unwrap().grants.remove(held);
                Some(after)
            }
            Step::Cancel(place) => {
                if state.is_cancelled {
                    return None;
                }
                cluster
                    .at(&home(place))
                    .ok(Command::Cancel(Box::new(Cancel {
                        namespace: Namespace::default(),
                        jobs: Selection::Graph(self.parts.graph.clone()),
                        reason: "by hand".into(),
                    })));
                let mut after = Self::store(cluster, state);
                after.is_cancelled = true;
                Some(after)
            }
            Step::Tick => {
                if state.ticks == TICKS_MAX {
                    return None;
                }
                cluster.pass(TICK);
                let mut after = Self::store(cluster, state);
                after.now.elapsed = after.now.elapsed.after(TICK);
                after.now.wall = after.now.wall.after(TICK);
                after.ticks += 1;
                Some(after)
            }
        }
    }

    fn state_of(&self, state: &State, member: usize) -> Option<JobState> {
        let job = &self.parts.ids[member];
        let rows = &state.shards[&job.shard].rows;
        if let Some(live) = rows.jobs.values().find(|row| row.id == job.id) {
            let runs = rows.leases.contains_key(&live.key);
            return Some(if runs { JobState::Running } else { live.state });
        }
        let ended = rows.finished.values().find(|row| row.id == job.id)?;
        Some(ended.finished.as_ref().unwrap().outcome.state())
    }

    /// Whether nothing is left to be done: everything has ended, or was never begun.
    fn is_over(state: &State) -> bool {
        let nothing_waits = state.shards.values().all(|stored| {
            let rows = &stored.rows;
            rows.outbox.is_empty() && rows.jobs.is_empty() && rows.part_jobs.is_empty()
        });
        nothing_waits && !state.may_decide
    }

    /// What must hold in every state, and at the end.
    fn check(&self, state: &State) {
        let of = |member| self.state_of(state, member);
        if of(2) == Some(JobState::Succeeded) {
            assert_eq!(of(0), Some(JobState::Succeeded), "G1");
            assert_eq!(of(1), Some(JobState::Succeeded), "G1");
        }
        if matches!(of(2), Some(JobState::Ready | JobState::Running)) {
            assert_eq!(of(0), Some(JobState::Succeeded), "G1");
            assert_eq!(of(1), Some(JobState::Succeeded), "G1");
        }
        for stored in state.shards.values() {
            for row in stored
                .rows
                .finished
                .values()
                .chain(stored.rows.jobs.values())
            {
                assert!(row.attempts_counted <= 2, "R1");
            }
        }
        if Self::is_over(state) {
            let ends: Vec<_> = (0..3).map(of).collect();
            let all = ends.iter().all(Option::is_some);
            let none = ends.iter().all(Option::is_none);
            assert!(all || none, "G8: {ends:?}");
            if all {
                let failed = |end: &Option<JobState>| *end != Some(JobState::Succeeded);
                if ends[..2].iter().any(failed) {
                    assert!(failed(&ends[2]), "G4: {ends:?}");
                }
            }
        }
    }
}

/// What makes two states the same: everything but random bits and readings of clocks.
fn print(state: &State) -> String {
    let mut out = format!(
        "{} {} {}|",
        state.ticks, state.is_cancelled, state.may_decide
    );
    for stored in state.shards.values() {
        let rows = &stored.rows;
        for (key, job) in rows.jobs.iter().chain(&rows.finished) {
            let lease = rows
                .leases
                .get(key)
                .map(|lease| (lease.attempt, lease.granted_at));
            let ended = job.finished.as_ref().map(|ended| ended.outcome);
            let counts = (job.attempt, job.attempts_counted, job.deaths, job.due);
            write!(out, "{key} {} {counts:?} {lease:?} {ended:?};", job.state).unwrap();
        }
        for row in rows.inputs.values() {
            write!(out, "{row:?};").unwrap();
        }
        for record in rows.outbox.values() {
            write!(out, "{} {:?};", record.number, record.message).unwrap();
        }
        for peer in rows.peers.values() {
            write!(out, "{} {} {};", peer.given, peer.confirmed, peer.received).unwrap();
        }
        for part in rows.parts.values() {
            write!(out, "{} {:?};", part.is_committed, part.cancelled).unwrap();
        }
        write!(out, "{:?}", rows.dependents.keys()).unwrap();
        for grant in &stored.grants {
            let held = rows.leases.get(&grant.key);
            let is_live = held.is_some_and(|lease| lease.token == grant.token);
            write!(out, "{} {} {is_live};", grant.key, grant.attempt).unwrap();
        }
        out.push('|');
    }
    out
}

fn begin() -> (Scope, Vec<State>) {
    let mut cluster = Cluster::new(&NAMES);
    let job = || NewJob {
        retry: Some(quick_retries(1)),
        ..support::job()
    };
    let mut last = job();
    last.inputs = vec![
        result_of(0, FailurePolicy::Fail),
        result_of(1, FailurePolicy::Fail),
    ];
    let spread = Spread {
        namespace: Namespace::default(),
        claim: None,
        jobs: vec![(shard("1"), job()), (shard("2"), job()), (shard("2"), last)],
    };
    let parts = cluster.cut(spread);
    let state = |cluster: &Cluster| State {
        shards: cluster
            .shards
            .iter()
            .map(|(id, world)| {
                let stored = Stored {
                    rows: world.rows.clone(),
                    meta: world.engine.meta(),
                    grants: Vec::new(),
                };
                (id.clone(), stored)
            })
            .collect(),
        now: cluster.shards[&shard("1")].now,
        ticks: 0,
        is_cancelled: false,
        may_decide: true,
    };
    let (decider, first) = parts.parts[0].clone();
    cluster.at(&decider).ok(Command::Prepare(Box::new(first)));
    let mut half = state(&cluster);
    half.may_decide = false;
    let (other, second) = parts.parts[1].clone();
    cluster.at(&other).ok(Command::Prepare(Box::new(second)));
    let whole = state(&cluster);
    (Scope { parts }, vec![half, whole])
}

fn hash(text: &str) -> u128 {
    use std::hash::{BuildHasher as _, RandomState};
    thread_local! {
        static KEYS: [RandomState; 2] = [RandomState::new(), RandomState::new()];
    }
    KEYS.with(|keys| {
        let [high, low] = keys.each_ref().map(|key| u128::from(key.hash_one(text)));
        high << 64 | low
    })
}

#[test]
fn every_state_of_two_shards_and_three_jobs_is_sound_and_has_a_way_out() {
    let limit: usize = std::env::var("GANGER_SCOPE_STATES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3_000);
    let (scope, roots) = begin();
    let mut seen: BTreeMap<u128, usize> = BTreeMap::new();
    let mut leads_from: Vec<Vec<usize>> = Vec::new();
    let mut over: Vec<usize> = Vec::new();
    let mut open: VecDeque<(usize, State)> = VecDeque::new();
    let mut enter = |state: State,
                     from: Option<usize>,
                     leads_from: &mut Vec<Vec<usize>>,
                     open: &mut VecDeque<(usize, State)>,
                     over: &mut Vec<usize>| {
        let next = seen.len();
        let place = *seen.entry(hash(&print(&state))).or_insert(next);
        if place == next {
            leads_from.push(Vec::new());
            scope.check(&state);
            if Scope::is_over(&state) {
                over.push(place);
            }
            open.push_back((place, state));
        }
        leads_from[place].extend(from);
    };
    for root in roots {
        enter(root, None, &mut leads_from, &mut open, &mut over);
    }
    let steps = all_steps();
    let mut taken = 0_u64;
    let mut cut = BTreeSet::new();
    while let Some((place, state)) = open.pop_front() {
        if leads_from.len() >= limit {
            cut.insert(place);
            continue;
        }
        for step in &steps {
            if let Some(after) = scope.take(&state, *step) {
                taken += 1;
                enter(after, Some(place), &mut leads_from, &mut open, &mut over);
            }
        }
    }
    // Backwards from the ends, and from the states whose successors were not looked at.
    let mut has_way = vec![false; leads_from.len()];
    let mut back: Vec<usize> = over.iter().copied().chain(cut.iter().copied()).collect();
    while let Some(place) = back.pop() {
        if !std::mem::replace(&mut has_way[place], true) {
            back.extend(&leads_from[place]);
        }
    }
    let stuck = has_way.iter().filter(|has| !**has).count();
    println!(
        "{} states, {taken} steps, {} ends, {} cut",
        has_way.len(),
        over.len(),
        cut.len()
    );
    assert_eq!(stuck, 0, "states without a way to an end");
}
