//! Work queues among raw keys: what the upkeep repairs, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::keys::{KeyResult, b, call, push, range, run, set, values};
use crate::support::World;
use ganger_types::keys::{End, Expiry, KeyCall, KeyReply, KeyUpkeep};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// An engine with upkeep of work queues.
fn tended() -> World {
    let mut world = World::new();
    world
        .engine
        .begin_key_upkeep(world.now, KeyUpkeep::default());
    world
}

fn add(world: &mut World, id: &str) {
    let item = set(&format!("P:item:{id}"), "data", Expiry::Never);
    run(world, vec![item, push("P:queue", &[id])]);
}

fn take(world: &mut World) {
    let pop = KeyCall::Move {
        from: b("P:queue"),
        to: b("P:processing"),
        from_end: End::Right,
        to_end: End::Left,
    };
    assert!(matches!(call(world, pop), Ok(KeyReply::Value(_))));
}

fn lease(world: &mut World, id: &str, seconds: u64) {
    let until = Expiry::After(Duration::from_secs(seconds));
    call(world, set(&format!("P:lease:{id}"), "who", until)).expect("a string");
}

fn lists(world: &mut World) -> Vec<KeyResult> {
    run(world, vec![range("P:queue"), range("P:processing")])
}

fn counts(world: &World) -> (u64, u64) {
    let counts = world.engine.key_upkeep_counts();
    (counts.put_back, counts.rescued)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_item_in_processing_without_a_lease_goes_back_to_the_end_of_the_line() {
    let mut world = tended();
    add(&mut world, "a");
    add(&mut world, "b");
    take(&mut world);
    world.pass(9 * SECOND);
    assert_eq!(lists(&mut world), [values(&["b"]), values(&["a"])]);
    world.pass(SECOND);
    assert_eq!(lists(&mut world), [values(&["a", "b"]), values(&[])]);
    assert_eq!(counts(&world), (1, 0));
    // A push by the upkeep serves waiting clients too.
    assert!(!world.engine.take_grown().is_empty());
}

#[test]
fn a_leased_item_stays_until_its_lease_is_over_however_often_it_is_renewed() {
    let mut world = tended();
    add(&mut world, "a");
    take(&mut world);
    lease(&mut world, "a", 30);
    world.pass(29 * SECOND);
    lease(&mut world, "a", 30);
    world.pass(29 * SECOND);
    assert_eq!(lists(&mut world), [values(&[]), values(&["a"])]);
    world.restart();
    world
        .engine
        .begin_key_upkeep(world.now, KeyUpkeep::default());
    world.pass(SECOND);
    assert_eq!(lists(&mut world), [values(&[]), values(&["a"])]);
    // After a start the delay begins again.
    world.pass(9 * SECOND);
    assert_eq!(lists(&mut world), [values(&["a"]), values(&[])]);
}

#[test]
fn a_lease_ends_when_it_ends() {
    for seconds in [1, 2, 5, 12] {
        let mut world = tended();
        add(&mut world, "a");
        take(&mut world);
        lease(&mut world, "a", seconds);
        world.pass(Duration::from_millis(seconds * 1_000 - 1));
        let held = [values(&[]), values(&["a"])];
        assert_eq!(lists(&mut world), held, "a lease of {seconds} s lives");
        world.pass(Duration::from_millis(1));
        let back = [values(&["a"]), values(&[])];
        assert_eq!(lists(&mut world), back, "a lease of {seconds} s has ended");
    }
}

#[test]
fn a_lease_that_is_given_up_leaves_the_item_its_grace() {
    let mut world = tended();
    add(&mut world, "a");
    take(&mut world);
    lease(&mut world, "a", 3_600);
    world.pass(20 * SECOND);
    let keys = vec![b("P:lease:a")];
    call(&mut world, KeyCall::Delete { keys }).expect("deleted");
    world.pass(9 * SECOND);
    assert_eq!(lists(&mut world), [values(&[]), values(&["a"])]);
    world.pass(SECOND);
    assert_eq!(lists(&mut world), [values(&["a"]), values(&[])]);
}

#[test]
fn an_item_that_is_taken_again_has_its_whole_grace_again() {
    let mut world = tended();
    add(&mut world, "a");
    take(&mut world);
    world.pass(9 * SECOND);
    let (key, value) = (b("P:processing"), b("a"));
    call(
        &mut world,
        KeyCall::Remove {
            key,
            count: 1,
            value,
        },
    )
    .expect("a list");
    call(&mut world, push("P:queue", &["a"])).expect("a list");
    take(&mut world);
    world.pass(9 * SECOND);
    assert_eq!(lists(&mut world), [values(&[]), values(&["a"])]);
    world.pass(SECOND);
    assert_eq!(lists(&mut world), [values(&["a"]), values(&[])]);
}

/// What clients of a work queue do with the only item.
#[derive(Clone, Debug)]
enum Step {
    Take,
    /// Sets a lease of this form, for a number of seconds or without an end.
    Lease(&'static str, Option<u64>),
    /// Changes the end of the lease.
    Expire(&'static str, u64),
    GiveUp(&'static str),
    Drop,
    Restart,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let family = || prop_oneof![Just("P:lease:a"), Just("P:leased_by_session:a")];
    prop_oneof![
        3 => Just(Step::Take),
        4 => (family(), option::weighted(0.8, 1_u64..30)).prop_map(|(key, until)| Step::Lease(key, until)),
        1 => (family(), 1_u64..30).prop_map(|(key, until)| Step::Expire(key, until)),
        2 => family().prop_map(Step::GiveUp),
        1 => Just(Step::Drop),
        1 => Just(Step::Restart),
        6 => (1_u64..12).prop_map(Step::Pass),
    ]
}

/// The end of a lease, and the steps in which it was created and last written.
struct Lease {
    until: Option<u64>,
    made: usize,
    written: usize,
}

/// The rule, without timers: an item in processing without a lease goes back when its lease has expired, or after the
/// delay since it was taken, since its lease was removed, or since the start.
#[derive(Default)]
struct Rule {
    now: u64,
    is_taken: bool,
    leases: BTreeMap<&'static str, Lease>,
    /// Number of steps so far.
    step: usize,
    begun_step: usize,
    /// Time at which an item without a lease goes back.
    back_at: u64,
    begun: u64,
}

impl Rule {
    fn second(&mut self) {
        self.now += 1;
        let now = self.now;
        let has_ended = |lease: &Lease| lease.until.is_some_and(|until| until <= now);
        let ended = self.leases.values().filter(|lease| has_ended(lease));
        // Of two leases that end at the same time the younger counts.
        if let Some(lease) = ended.max_by_key(|lease| lease.made) {
            // A lease from before a start could not be renewed meanwhile, so its delay counts from the start.
            let is_older = lease.written < self.begun_step;
            let grace = if is_older { self.begun + 10 } else { 0 };
            self.back_at = now.max(grace);
        }
        self.leases.retain(|_, lease| !has_ended(lease));
        if self.is_taken && self.leases.is_empty() && now >= self.back_at {
            self.is_taken = false;
        }
    }
}

proptest! {
    #[test]
    fn an_item_goes_back_when_its_lease_or_its_grace_ends(steps in vec(step(), 1..25)) {
        let mut world = tended();
        add(&mut world, "a");
        // Keeps the queue existing without the item.
        call(&mut world, push("P:queue", &["ghost"])).expect("a list");
        let mut rule = Rule::default();
        for one in steps {
            rule.step += 1;
            match one {
                Step::Take if !rule.is_taken => {
                    let (key, value) = (b("P:queue"), b("a"));
                    call(&mut world, KeyCall::Remove { key, count: 0, value }).expect("a list");
                    call(&mut world, push("P:processing", &["a"])).expect("a list");
                    rule.is_taken = true;
                    rule.back_at = rule.now + 10;
                }
                Step::Lease(key, until) => {
                    let expiry = until.map_or(Expiry::Never, |until| Expiry::After(Duration::from_secs(until)));
                    call(&mut world, set(key, "who", expiry)).expect("a string");
                    let until = until.map(|until| rule.now + until);
                    let made = rule.leases.get(key).map_or(rule.step, |lease| lease.made);
                    let written = rule.step;
                    rule.leases.insert(key, Lease { until, made, written });
                }
                Step::Expire(name, until) => {
                    let expiry = Expiry::After(Duration::from_secs(until));
                    call(&mut world, KeyCall::Expire { key: b(name), expiry }).expect("a number");
                    if let Some(lease) = rule.leases.get_mut(name) {
                        lease.until = Some(rule.now + until);
                        lease.written = rule.step;
                    }
                }
                Step::GiveUp(name) => {
                    call(&mut world, KeyCall::Delete { keys: vec![b(name)] }).expect("a number");
                    if rule.leases.remove(name).is_some() {
                        rule.back_at = rule.now + 10;
                    }
                }
                Step::Drop if rule.is_taken => {
                    let (key, value) = (b("P:processing"), b("a"));
                    call(&mut world, KeyCall::Remove { key, count: 0, value }).expect("a list");
                    call(&mut world, push("P:queue", &["a"])).expect("a list");
                    rule.is_taken = false;
                }
                Step::Restart => {
                    world.restart();
                    world.engine.begin_key_upkeep(world.now, KeyUpkeep::default());
                    (rule.begun, rule.begun_step) = (rule.now, rule.step);
                    rule.back_at = rule.now + 10;
                }
                Step::Pass(seconds) => for _ in 0..seconds {
                    world.pass(SECOND);
                    rule.second();
                },
                Step::Take | Step::Drop => {}
            }
            let is_taken = call(&mut world, range("P:processing")) == values(&["a"]);
            prop_assert_eq!(is_taken, rule.is_taken, "at {} s", rule.now);
        }
    }
}

#[test]
fn either_familys_lease_counts() {
    let mut world = tended();
    add(&mut world, "a");
    take(&mut world);
    lease(&mut world, "a", 12);
    let older = Expiry::After(20 * SECOND);
    call(&mut world, set("P:leased_by_session:a", "who", older)).expect("a string");
    world.pass(19 * SECOND);
    assert_eq!(lists(&mut world), [values(&[]), values(&["a"])]);
    world.pass(SECOND);
    assert_eq!(lists(&mut world), [values(&["a"]), values(&[])]);
}

#[test]
fn ghosts_and_lists_of_other_programs_are_left_alone() {
    let mut world = tended();
    call(&mut world, push("P:queue", &["ghost"])).expect("a list");
    take(&mut world);
    call(&mut world, push("jobs:processing", &["{\"payload\":1}"])).expect("a list");
    world.pass(3_600 * SECOND);
    assert_eq!(lists(&mut world), [values(&[]), values(&["ghost"])]);
    let other = call(&mut world, range("jobs:processing"));
    assert_eq!(other, values(&["{\"payload\":1}"]));
    assert_eq!(counts(&world), (0, 0));
}

#[test]
fn an_id_that_is_in_line_already_is_only_taken_out_of_processing() {
    let mut world = tended();
    add(&mut world, "a");
    take(&mut world);
    call(&mut world, push("P:queue", &["a"])).expect("a list");
    world.pass(10 * SECOND);
    assert_eq!(lists(&mut world), [values(&["a"]), values(&[])]);
}

#[test]
fn a_completed_item_is_never_put_back() {
    let mut world = tended();
    add(&mut world, "a");
    take(&mut world);
    lease(&mut world, "a", 30);
    let complete = vec![
        KeyCall::Delete {
            keys: vec![b("P:item:a")],
        },
        KeyCall::Remove {
            key: b("P:processing"),
            count: 0,
            value: b("a"),
        },
        KeyCall::Delete {
            keys: vec![b("P:lease:a")],
        },
    ];
    run(&mut world, complete);
    world.pass(3_600 * SECOND);
    assert_eq!(call(&mut world, KeyCall::Count), Ok(KeyReply::Number(0)));
    assert_eq!(counts(&world), (0, 0));
}

#[test]
fn an_item_in_no_list_is_put_on_a_queue_that_is_known() {
    let mut world = tended();
    add(&mut world, "a");
    // The producer of the first died before its push; the queue of the other does not exist.
    call(&mut world, set("P:item:b:item:c", "data", Expiry::Never)).expect("a string");
    call(&mut world, set("Q:item:d", "data", Expiry::Never)).expect("a string");
    world.pass(59 * SECOND);
    assert_eq!(lists(&mut world), [values(&["a"]), values(&[])]);
    world.pass(SECOND);
    assert_eq!(lists(&mut world), [values(&["b:item:c", "a"]), values(&[])]);
    assert_eq!(counts(&world), (0, 1));
    // A cleaner that removes an expired id without pushing it again has the same effect.
    take(&mut world);
    lease(&mut world, "a", 70);
    let dropped = KeyCall::Remove {
        key: b("P:processing"),
        count: 0,
        value: b("a"),
    };
    call(&mut world, dropped).expect("a list");
    world.pass(69 * SECOND);
    assert_eq!(lists(&mut world), [values(&["b:item:c"]), values(&[])]);
    world.pass(SECOND);
    assert_eq!(lists(&mut world), [values(&["a", "b:item:c"]), values(&[])]);
    assert_eq!(counts(&world), (0, 2));
}

#[test]
fn an_orphan_is_found_again_after_a_restart() {
    let mut world = World::new();
    add(&mut world, "a");
    call(&mut world, set("P:item:b", "data", Expiry::Never)).expect("a string");
    world.restart();
    world
        .engine
        .begin_key_upkeep(world.now, KeyUpkeep::default());
    world.pass(60 * SECOND);
    assert_eq!(lists(&mut world), [values(&["b", "a"]), values(&[])]);
}

#[test]
fn without_upkeep_nothing_is_touched() {
    let mut world = World::new();
    add(&mut world, "a");
    take(&mut world);
    world.pass(3_600 * SECOND);
    assert_eq!(lists(&mut world), [values(&[]), values(&["a"])]);
}
