//! Exhaustive search of what two shards can do with three jobs: every state that any order of events leads to is
//! reached, checked, and shown to have a path to an end.
//!
//! Two jobs are dependencies of a third, one of them on the other shard. Messages are delivered with or without a
//! confirmation; without one they come again. Jobs are leased, completed, failed, or left to expire; the graph is
//! cancelled once; time passes at any point; the submitter may die before it decides. Between any two events every
//! shard is restarted from its rows, as after a crash.
//!
//! Two states are equal if everything that can still happen is equal: clocks, message numbers, tokens and history are
//! ignored (see `print`). The search is therefore finite and complete.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test says what it has seen; one that unwraps wrongly fails, as it should"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use crate::support::cluster::{Cluster, shard};
use crate::support::{Rows, World, complete, fail, quick_retries, result_of};
use ganger_engine::{ShardParts, ShardedSubmission};
use ganger_types::command::*;
use ganger_types::*;

/// Longer than a lease, and than an undecided submission waits.
const TICK: std::time::Duration = std::time::Duration::from_secs(130);

/// A shard, as stored.
#[derive(Clone)]
struct Stored {
    rows: Rows,
    meta: Meta,
    epoch: u64,
    /// Live leases of its worker, by job.
    grants: BTreeMap<JobKey, Grant>,
    /// Ended leases of its worker. Reports under them must change nothing, so they are not part of the state.
    lapsed: Vec<Grant>,
}

#[derive(Clone)]
struct State {
    shards: BTreeMap<ShardId, Stored>,
    now: Now,
    is_cancelled: bool,
    /// Whether the submitter may still decide.
    may_decide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Decide(bool),
    Vanish,
    /// Delivers a number of messages from one shard to the other, with or without a confirmation.
    Deliver {
        from: usize,
        count: usize,
        heard: bool,
    },
    Lease(usize),
    Complete(usize, JobKey),
    Fail(usize, JobKey),
    Cancel(usize),
    Tick,
}

const NAMES: [&str; 2] = ["1", "2"];

/// The possible steps of a state; some of them may change nothing.
fn steps_of(state: &State) -> Vec<Step> {
    let mut steps = vec![Step::Tick];
    if state.may_decide {
        steps.extend([Step::Decide(true), Step::Decide(false), Step::Vanish]);
    }
    for (place, stored) in state.shards.values().enumerate() {
        // Several confirmed messages are the same as one after the other.
        for count in 1..=stored.rows.outbox.len() {
            let from = place;
            steps.push(Step::Deliver {
                from,
                count,
                heard: false,
            });
        }
        if !stored.rows.outbox.is_empty() {
            let (from, count) = (place, 1);
            steps.push(Step::Deliver {
                from,
                count,
                heard: true,
            });
        }
        if stored.rows.jobs.len() > stored.grants.len() {
            steps.push(Step::Lease(place));
        }
        if !state.is_cancelled {
            steps.push(Step::Cancel(place));
        }
        for held in stored.grants.keys() {
            steps.push(Step::Complete(place, *held));
            steps.push(Step::Fail(place, *held));
        }
    }
    steps
}

struct Scope {
    parts: ShardParts,
}

impl Scope {
    /// A shard, started from its rows.
    fn load(state: &State, id: &ShardId) -> World {
        let stored = &state.shards[id];
        let mut world = World::of_shard(id);
        world.now = state.now;
        world.epoch = stored.epoch;
        world.restore(stored.rows.clone(), stored.meta);
        world
    }

    fn load_all<'a>(state: &State, ids: impl IntoIterator<Item = &'a ShardId>) -> Cluster {
        let ids = ids.into_iter();
        Cluster {
            shards: ids.map(|id| (id.clone(), Self::load(state, id))).collect(),
        }
    }

    fn store(cluster: Cluster, before: &State) -> State {
        let mut after = before.clone();
        for (id, world) in cluster.shards {
            let stored = after.shards.get_mut(&id).unwrap();
            stored.meta = world.engine.meta();
            stored.epoch = world.epoch;
            stored.rows = world.rows;
            let leases = &stored.rows.leases;
            let ended = stored.grants.extract_if(.., |key, grant| {
                leases
                    .get(key)
                    .is_none_or(|lease| lease.token != grant.token)
            });
            stored.lapsed.extend(ended.map(|(_, grant)| grant));
        }
        after
    }

    /// The state after a step; `None` if the step is impossible or changes nothing.
    fn take(&self, state: &State, step: Step) -> Option<State> {
        let home = |place: usize| shard(NAMES[place]);
        let alone = |place: usize| Self::load_all(state, [&home(place)]);
        match step {
            Step::Decide(is_committed) => {
                let mut cluster = Self::load_all(state, [&self.parts.parts[0].0]);
                // Any answer is acceptable.
                let _ = cluster.decide(&self.parts, is_committed);
                let mut after = Self::store(cluster, state);
                after.may_decide = false;
                Some(after)
            }
            Step::Vanish => {
                let mut after = state.clone();
                after.may_decide = false;
                Some(after)
            }
            Step::Deliver { from, count, heard } => {
                let (from, to) = (home(from), home(1 - from));
                let mut cluster = Self::load_all(state, [&from, &to]);
                let batch = cluster.batch(&from, &to, count);
                let (up_to, stopped) = cluster.deliver(&to, batch);
                assert_eq!(stopped, None, "nobody went back in time");
                if heard {
                    cluster.confirm(&from, &to, up_to);
                }
                Some(Self::store(cluster, state))
            }
            Step::Lease(place) => {
                let mut cluster = alone(place);
                let grant = cluster.at(&home(place)).lease("w", 1).pop()?;
                let mut after = Self::store(cluster, state);
                let stored = after.shards.get_mut(&home(place)).unwrap();
                let before = stored.grants.insert(grant.key, grant);
                assert_eq!(before, None, "L1");
                Some(after)
            }
            Step::Complete(place, held) | Step::Fail(place, held) => {
                let id = home(place);
                let grant = &state.shards[&id].grants[&held];
                let report = match step {
                    Step::Complete(..) => complete(grant, "\"done\""),
                    _ => fail(grant, false),
                };
                let mut cluster = alone(place);
                cluster.at(&id).ok(report);
                Some(Self::store(cluster, state))
            }
            Step::Cancel(place) => {
                let mut cluster = alone(place);
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
                let mut cluster = Self::load_all(state, state.shards.keys());
                cluster.pass(TICK);
                let mut after = Self::store(cluster, state);
                after.now.elapsed = after.now.elapsed.after(TICK);
                after.now.wall = after.now.wall.after(TICK);
                Some(after)
            }
        }
    }

    /// Checks that reports under ended leases change nothing (`rel L5`, `L7`).
    fn check_lapsed(state: &State) {
        for (id, stored) in &state.shards {
            if stored.lapsed.is_empty() {
                continue;
            }
            let mut world = Self::load(state, id);
            world.pass(std::time::Duration::ZERO);
            let before = world.rows.clone();
            for grant in &stored.lapsed {
                for report in [complete(grant, "\"late\""), fail(grant, false)] {
                    let _ = world.run(report);
                }
            }
            assert!(world.rows == before, "L5: a late report changed {id}");
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

    /// Whether everything has ended or was never begun.
    fn is_over(state: &State) -> bool {
        let nothing_waits = state.shards.values().all(|stored| {
            let rows = &stored.rows;
            rows.outbox.is_empty() && rows.jobs.is_empty() && rows.part_jobs.is_empty()
        });
        nothing_waits && !state.may_decide
    }

    /// Checks what must hold in every state, and at the end.
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

/// The identity of a state: everything that determines what can still happen. It omits random bits, clock readings
/// except remaining times, message numbers except their order and which of them the receiver has, history,
/// statistics, and everything of ended jobs except their end.
fn print(state: &State) -> String {
    let mut out = format!("{} {}|", state.is_cancelled, state.may_decide);
    for (id, stored) in &state.shards {
        let rows = &stored.rows;
        for (key, job) in &rows.jobs {
            let waits = job.due.map(|due| match due {
                Due::Elapsed(at) => at.since(state.now.elapsed),
                Due::Wall(at) => at.since(state.now.wall),
            });
            let runs = rows.leases.contains_key(key);
            let counted = job.attempts_counted;
            write!(out, "{key} {} {counted} {waits:?} {runs};", job.state).unwrap();
            for (_, input) in rows.inputs.range((*key, 0)..=(*key, u32::MAX)) {
                write!(out, "{input:?};").unwrap();
            }
        }
        for (key, job) in &rows.finished {
            write!(out, "{key} {:?};", job.finished.as_ref().unwrap().outcome).unwrap();
        }
        for ((to, number), record) in &rows.outbox {
            let there = state.shards[to].rows.peers.get(id);
            let is_there = there.is_some_and(|peer| peer.received >= *number);
            write!(out, "{is_there} {:?};", record.message).unwrap();
        }
        for part in rows.parts.values() {
            write!(out, "{} {:?};", part.is_committed, part.cancelled).unwrap();
        }
        write!(out, "{:?}|", rows.dependents.keys()).unwrap();
    }
    out
}

fn begin() -> (Scope, Vec<State>) {
    let mut cluster = Cluster::new(&NAMES);
    let job = || NewJob {
        retry: Some(quick_retries(1)),
        ..crate::support::job()
    };
    let mut last = job();
    last.inputs = vec![
        result_of(0, FailurePolicy::Fail),
        result_of(1, FailurePolicy::Fail),
    ];
    let spread = ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
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
                    epoch: world.epoch,
                    grants: BTreeMap::new(),
                    lapsed: Vec::new(),
                };
                (id.clone(), stored)
            })
            .collect(),
        now: cluster.shards[&shard("1")].now,
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
            Scope::check_lapsed(&state);
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
    let mut taken = 0_u64;
    let mut cut = BTreeSet::new();
    while let Some((place, state)) = open.pop_front() {
        if leads_from.len() >= limit {
            cut.insert(place);
            continue;
        }
        for step in steps_of(&state) {
            if let Some(after) = scope.take(&state, step) {
                taken += 1;
                enter(after, Some(place), &mut leads_from, &mut open, &mut over);
            }
        }
    }
    // Search backwards from the ends, and from the states whose successors were not visited.
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
