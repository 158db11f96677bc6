//! Reads of raw keys are answered at once, and only with durable values (`rel D1`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::kit::{GatedReader, GatedStore, StoreControl, as_stored};
use ganger_shard::core::{CallReply, Core, Output, Request, StoreExecutor, StoreTask};
use ganger_shard::{Hooks, Settings, ShardMetrics};
use ganger_store::{MemoryStore, Store};
use ganger_types::keys::{Condition, Expiry, KeyAnswers, KeyCall, KeyReply};
use ganger_types::{
    Bytes, Change, Command, Elapsed, ExternalChange, ExternalReply, KeyCalls, Namespace, Now,
    Reply, Timestamp,
};
use proptest::prelude::*;

type Value = Option<Bytes>;

/// A core, and a store that works step by step.
struct World {
    core: Core<GatedReader, u64>,
    executor: StoreExecutor<GatedStore>,
    store_tasks: VecDeque<StoreTask>,
    now: Now,
    next: u64,
    /// The key that each open read names.
    reads: BTreeMap<u64, u8>,
    answers: BTreeMap<u64, KeyReply>,
    /// The values that each key has held durably.
    durable: BTreeMap<u8, BTreeSet<Value>>,
    /// Name of each key, by the key's number.
    names: BTreeMap<u64, u8>,
}

impl World {
    fn new() -> Self {
        let control = StoreControl::default();
        let mut gate = GatedStore::new(MemoryStore::new(), &control);
        let opened = gate.open().expect("memory opens");
        let metrics: Arc<ShardMetrics> = Arc::default();
        let now = Now {
            elapsed: Elapsed(0),
            wall: Timestamp(1_700_000_000_000_000),
        };
        let settings = Settings {
            group_wait: Duration::ZERO,
            ..Settings::default()
        };
        let seeds = Box::new(|| [7; 32]);
        let mut world = Self {
            core: as_stored(Core::new(
                settings,
                Arc::clone(&metrics),
                opened,
                now,
                seeds,
            )),
            executor: StoreExecutor::new(gate, metrics, Hooks::default()),
            store_tasks: VecDeque::new(),
            now,
            next: 0,
            reads: BTreeMap::new(),
            answers: BTreeMap::new(),
            durable: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        world.settle();
        world
    }

    fn call(&mut self, call: KeyCall) -> u64 {
        self.next += 1;
        let calls = KeyCalls {
            namespace: Namespace::default(),
            watched: Vec::new(),
            calls: vec![call],
        };
        self.core.push(Request::CallAll {
            commands: vec![Command::from(calls)],
            ticket: self.next,
        });
        self.next
    }

    fn set(&mut self, key: u8, expiry: Expiry) -> u64 {
        // Each write has a distinct value.
        let value = Bytes::from(self.next.to_string());
        self.call(KeyCall::Set {
            key: name(key),
            value,
            expiry,
            condition: Condition::Always,
            gets: false,
        })
    }

    fn get(&mut self, key: u8) -> u64 {
        let ticket = self.call(KeyCall::Get { key: name(key) });
        self.reads.insert(ticket, key);
        ticket
    }

    fn run(&mut self) {
        self.core.run(self.now);
        self.store_tasks.extend(self.core.take_store_tasks());
        for output in self.core.take_outputs() {
            let Output::Answer(ticket, answer) = output else {
                continue;
            };
            let reply = match answer.expect("nothing fails") {
                CallReply::Replies(mut replies) => replies.remove(0).expect("nothing is refused"),
                other => panic!("{other:?}"),
            };
            let Reply::External(ExternalReply::Keys(KeyAnswers::Each(mut replies))) = reply else {
                panic!("{reply:?}");
            };
            let reply = replies.remove(0).expect("a string");
            if let Some(key) = self.reads.remove(&ticket) {
                self.look_at(key, &reply);
            }
            self.answers.insert(ticket, reply);
        }
    }

    fn look_at(&self, key: u8, reply: &KeyReply) {
        let value = match reply {
            KeyReply::Value(value) => Some(value.clone()),
            KeyReply::Nil => None,
            other => panic!("{other:?}"),
        };
        let was_durable = match self.durable.get(&key) {
            None => value.is_none(),
            Some(values) => values.contains(&value),
        };
        assert!(
            was_durable,
            "key {key} was shown as {value:?} before that was durable"
        );
    }

    /// Lets the store execute one task.
    fn store_works(&mut self) {
        let Some(task) = self.store_tasks.pop_front() else {
            return;
        };
        if let StoreTask::Commit(commit) = &task {
            for change in &commit.changes {
                self.note(change);
            }
        }
        if let Some(report) = self.executor.execute(task).report() {
            self.core.report(report, self.now);
        }
        self.run();
    }

    fn note(&mut self, change: &Change) {
        match change {
            Change::External(ExternalChange::PutKey(record)) => {
                let key = record.name[0];
                self.names.insert(record.number, key);
                let values = self.durable.entry(key).or_insert_with(|| [None].into());
                values.insert(record.value.clone());
            }
            Change::External(ExternalChange::RemoveKey(number)) => {
                let values = self.durable.entry(self.names[number]).or_default();
                values.insert(None);
            }
            _ => {}
        }
    }

    fn settle(&mut self) {
        self.run();
        while !self.store_tasks.is_empty() {
            self.store_works();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now.elapsed = self.now.elapsed.after(time);
        self.now.wall = self.now.wall.after(time);
    }
}

fn name(key: u8) -> Bytes {
    Bytes::from(vec![key])
}

#[test]
fn what_is_durable_is_read_while_a_write_of_something_else_is_flushed() {
    let mut world = World::new();
    let first = world.set(b'a', Expiry::Never);
    world.settle();
    assert_eq!(world.answers[&first], KeyReply::Done);
    let write = world.set(b'b', Expiry::Never);
    world.run();
    let (ours, absent) = (world.get(b'a'), world.get(b'c'));
    let theirs = world.get(b'b');
    world.run();
    assert_eq!(world.answers[&ours], KeyReply::Value("0".into()));
    assert_eq!(world.answers[&absent], KeyReply::Nil);
    assert!(!world.answers.contains_key(&write));
    assert!(!world.answers.contains_key(&theirs), "that is not durable");
    world.settle();
    assert_eq!(world.answers[&theirs], KeyReply::Value("1".into()));
}

#[test]
fn a_read_overtakes_the_writes_that_came_with_it() {
    let mut world = World::new();
    world.set(b'a', Expiry::Never);
    world.settle();
    let write = world.set(b'a', Expiry::Never);
    let read = world.get(b'a');
    world.run();
    assert_eq!(world.answers[&read], KeyReply::Value("0".into()));
    assert!(!world.answers.contains_key(&write));
    world.settle();
    assert_eq!(world.answers[&write], KeyReply::Done);
}

#[test]
fn that_a_key_is_gone_is_told_once_it_is_durable() {
    let mut world = World::new();
    world.set(b'a', Expiry::Never);
    world.set(b'e', Expiry::After(Duration::from_secs(1)));
    world.settle();
    world.call(KeyCall::Delete {
        keys: vec![name(b'a')],
    });
    world.run();
    let read = world.get(b'a');
    world.run();
    assert!(!world.answers.contains_key(&read));
    world.settle();
    assert_eq!(world.answers[&read], KeyReply::Nil);
    world.pass(Duration::from_secs(2));
    let read = world.get(b'e');
    world.run();
    assert!(
        !world.answers.contains_key(&read),
        "its removal is on its way"
    );
    world.settle();
    assert_eq!(world.answers[&read], KeyReply::Nil);
}

#[test]
fn a_look_at_all_keys_waits_for_every_write() {
    let mut world = World::new();
    world.set(b'a', Expiry::Never);
    world.settle();
    let count = world.call(KeyCall::Count);
    world.run();
    assert_eq!(world.answers[&count], KeyReply::Number(1));
    world.set(b'b', Expiry::Never);
    world.run();
    let count = world.call(KeyCall::Count);
    world.run();
    assert!(!world.answers.contains_key(&count));
    world.settle();
    assert_eq!(world.answers[&count], KeyReply::Number(2));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(u8),
    SetForAWhile(u8),
    Delete(u8),
    Get(u8),
    Run,
    StoreWorks,
    Time,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || b'a'..b'e';
    let step = prop_oneof![
        3 => key().prop_map(Step::Set),
        1 => key().prop_map(Step::SetForAWhile),
        2 => key().prop_map(Step::Delete),
        5 => key().prop_map(Step::Get),
        4 => Just(Step::Run),
        3 => Just(Step::StoreWorks),
        1 => Just(Step::Time),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn nothing_is_read_that_is_not_durable(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Set(key) => {
                    world.set(key, Expiry::Never);
                }
                Step::SetForAWhile(key) => {
                    world.set(key, Expiry::After(Duration::from_millis(30)));
                }
                Step::Delete(key) => {
                    world.call(KeyCall::Delete { keys: vec![name(key)] });
                }
                Step::Get(key) => {
                    world.get(key);
                }
                Step::Run => world.run(),
                Step::StoreWorks => world.store_works(),
                Step::Time => world.pass(Duration::from_millis(20)),
            }
        }
        world.settle();
        let all = world.next;
        prop_assert!((1..=all).all(|ticket| world.answers.contains_key(&ticket)), "all are answered");
    }
}
