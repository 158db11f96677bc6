//! qless in the engine: its rows rebuild it, namespaces are separate, and a refused call changes nothing.

#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;

use crate::support::World;
use ganger_engine::{Effects, PrefetchedRows};
use ganger_types::command::ConfigureNamespace;
use ganger_types::qless::{Generation, QlessReply, QlessRequest, QlessSet};
use ganger_types::query::{JobQuery, Query};
use ganger_types::reply::ExternalJobView;
use ganger_types::{
    Bytes, Change, Clock, Command, Event, ExternalChange, ExternalReply, ExternalRowKey, Happening,
    JobId, JobKey, JobState, Namespace, NamespaceSettings, QlessAnswer, QlessCall, QlessMessage,
    Queue, Reply,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn text(words: &str) -> Vec<Bytes> {
    let words = words.split(' ').map(str::to_owned);
    words.map(Bytes::from).collect()
}

fn request(namespace: &Namespace, request: QlessRequest) -> Command {
    Command::from(QlessCall {
        namespace: namespace.clone(),
        request,
    })
}

fn script(namespace: &Namespace, words: &str) -> Command {
    let (generation, words) = (Generation::Three, text(words));
    request(namespace, QlessRequest::Script { generation, words })
}

fn answer(reply: Reply) -> QlessAnswer {
    match reply {
        Reply::External(ExternalReply::Qless(answer)) => answer,
        other => panic!("not an answer of qless: {other:?}"),
    }
}

fn call(world: &mut World, namespace: &Namespace, words: &str) -> QlessAnswer {
    answer(world.ok(script(namespace, words)))
}

fn count(world: &mut World, namespace: &Namespace, set: QlessSet) -> i64 {
    let queue = Bytes::from_static(b"q");
    match answer(world.ok(request(namespace, QlessRequest::Count { queue, set }))) {
        Ok(QlessReply::Number(count)) => count,
        other => panic!("not a number: {other:?}"),
    }
}

fn other() -> Namespace {
    Namespace::from_static("other")
}

#[test]
fn what_is_put_survives_a_restart_with_its_lock_and_its_order() {
    let mut world = World::new();
    let default = Namespace::default();
    for (jid, priority) in [("a", 1), ("b", 3), ("c", 2)] {
        let put = format!("put 10.5 w q {jid} k {{}} 0 priority {priority}");
        assert!(call(&mut world, &default, &put).is_ok());
    }
    assert!(call(&mut world, &default, "pop 11.25 q w 1").is_ok());
    world.restart();
    assert_eq!(count(&mut world, &default, QlessSet::Locks), 1);
    assert_eq!(count(&mut world, &default, QlessSet::Work), 2);
    assert_eq!(
        call(&mut world, &default, "heartbeat 12.75 b w"),
        Ok(QlessReply::Number(72)),
        "the lock is still there"
    );
    call(&mut world, &default, "pop 13 q w 1").expect("accepted");
    world.restart();
    let popped = call(&mut world, &default, "jobs 13 running q");
    let both = vec![Bytes::from_static(b"b"), Bytes::from_static(b"c")];
    let Ok(QlessReply::List(mut jids)) = popped else {
        panic!("not a list: {popped:?}");
    };
    jids.sort();
    assert_eq!(jids, both);
}

#[test]
fn a_refused_call_is_an_answer_and_leaves_no_trace() {
    let mut world = World::new();
    let default = Namespace::default();
    call(&mut world, &default, "put 1 w q a k {} 0").expect("accepted");
    let (before, told) = (world.engine.dump(), world.messages.len());
    for words in ["put 1 w q", "complete 2 a w q {}", "nothing 3", "pop"] {
        let refused = call(&mut world, &default, words);
        assert!(refused.is_err(), "{words}: {refused:?}");
        assert_eq!(world.engine.dump(), before, "{words}");
        assert_eq!(world.messages.len(), told, "{words}");
    }
}

#[test]
fn namespaces_are_independent_and_are_cleared_separately() {
    let mut world = World::new();
    let default = Namespace::default();
    for namespace in [&default, &other()] {
        call(&mut world, namespace, "put 1 w q a k {} 0").expect("accepted");
    }
    world.ok(request(&default, QlessRequest::Clear));
    world.restart();
    assert_eq!(count(&mut world, &default, QlessSet::Work), 0);
    assert_eq!(count(&mut world, &other(), QlessSet::Work), 1);
    assert!(
        world
            .rows
            .external
            .keys()
            .all(|key| matches!(key, ExternalRowKey::Qless(space, _) if *space == other()))
    );
}

#[test]
fn a_namespace_on_its_callers_clocks_is_no_different() {
    let mut world = World::new();
    world.ok(Command::ConfigureNamespace(Box::new(ConfigureNamespace {
        namespace: other(),
        settings: NamespaceSettings {
            clock: Clock::Caller,
            ..NamespaceSettings::default()
        },
    })));
    call(&mut world, &other(), "put 600 w q a k {} 0").expect("accepted");
    call(&mut world, &other(), "pop 1 q w 1").expect("accepted");
    assert_eq!(count(&mut world, &other(), QlessSet::Locks), 1);
    world.restart();
    assert_eq!(count(&mut world, &other(), QlessSet::Locks), 1);
}

#[test]
fn a_row_is_written_once_a_turn_and_messages_come_in_the_order_of_their_calls() {
    let mut world = World::new();
    let mut out = Effects::default();
    let default = Namespace::default();
    assert!(!world.engine.may_write_at_end());
    for words in [
        "put 1 w q a k {} 0",
        "put 2 w q b k {} 0",
        "pop 3 q w 2",
        "complete 4 a w q {}",
    ] {
        let reply = world.engine.apply(
            world.now,
            script(&default, words),
            &PrefetchedRows::default(),
            &mut out,
        );
        assert!(answer(reply.expect("accepted")).is_ok(), "{words}");
        assert_eq!(out.changes, [], "{words}");
    }
    assert!(world.engine.may_write_at_end());
    world.engine.end_turn(world.now, &mut out);
    assert!(!world.engine.may_write_at_end());
    let mut keys: Vec<_> = out.changes.iter().map(key_of).collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all, "{:?}", out.changes);
    let events = out.messages.iter().map(|(_, message)| {
        let payload = String::from_utf8_lossy(&message.payload);
        let jid = if payload.contains(r#""jid":"a""#) {
            "a"
        } else {
            "b"
        };
        (message.channel.clone(), jid)
    });
    let log = Bytes::from_static(b"ql:log");
    let expected = [(log.clone(), "a"), (log.clone(), "b"), (log, "a")];
    assert_eq!(events.collect::<Vec<_>>(), expected);
}

fn key_of(change: &Change) -> (Namespace, ganger_types::QlessKey) {
    match change {
        Change::External(ExternalChange::PutQless(namespace, row)) => {
            (namespace.clone(), row.key())
        }
        Change::External(ExternalChange::RemoveQless(namespace, key)) => {
            (namespace.clone(), key.clone())
        }
        other => panic!("not of qless: {other:?}"),
    }
}

/// Arguments of commands about a few jobs, queues and workers.
fn arguments() -> impl Strategy<Value = (&'static str, String)> {
    let jid = || select(vec!["a", "b", "c", "d", "e"]);
    let queue = || select(vec!["q", "p"]);
    let worker = || select(vec!["v", "w"]);
    let id = select(vec!["t", "ql:q:q"]);
    prop_oneof![
        4 => (worker(), queue(), jid(), options()).prop_map(|(w, q, j, more)| {
            ("put", format!("{w} {q} {j} k {{}} {more}"))
        }),
        4 => (queue(), worker(), 0..3).prop_map(|(q, w, n)| ("pop", format!("{q} {w} {n}"))),
        2 => (jid(), worker(), queue()).prop_map(|(j, w, q)| ("complete", format!("{j} {w} {q} {{}}"))),
        1 => (jid(), worker(), queue(), queue(), jid()).prop_map(|(j, w, q, to, on)| {
            ("complete", format!("{j} {w} {q} {{}} next {to} depends [\"{on}\"]"))
        }),
        2 => (jid(), worker()).prop_map(|(j, w)| ("fail", format!("{j} {w} group message"))),
        1 => (jid(), queue(), worker(), 0..50).prop_map(|(j, q, w, delay)| {
            ("retry", format!("{j} {q} {w} {delay}"))
        }),
        1 => (jid(), worker()).prop_map(|(j, w)| ("heartbeat", format!("{j} {w}"))),
        1 => (jid(), jid()).prop_map(|(j, k)| ("cancel", format!("{j} {k}"))),
        1 => jid().prop_map(|j| ("track", format!("track {j}"))),
        1 => jid().prop_map(|j| ("track", format!("untrack {j}"))),
        1 => jid().prop_map(|j| ("tag", format!("add {j} x y"))),
        1 => jid().prop_map(|j| ("tag", format!("remove {j} x"))),
        1 => (jid(), jid()).prop_map(|(j, k)| ("depends", format!("{j} off {k}"))),
        1 => (jid(), -2..3).prop_map(|(j, n)| ("priority", format!("{j} {n}"))),
        1 => jid().prop_map(|j| ("timeout", j.to_owned())),
        1 => queue().prop_map(|q| ("unfail", format!("{q} group"))),
        1 => (queue(), jid(), 1..90).prop_map(|(q, j, n)| {
            ("recur", format!("{q} {j} k {{}} interval {n} 0 backlog 3"))
        }),
        1 => jid().prop_map(|j| ("unrecur", j.to_owned())),
        1 => jid().prop_map(|j| ("log", format!("{j} message"))),
        1 => queue().prop_map(|q| ("pause", q.to_owned())),
        2 => queue().prop_map(|q| ("unpause", q.to_owned())),
        1 => queue().prop_map(|q| ("queue.forget", q.to_owned())),
        1 => worker().prop_map(|w| ("worker.deregister", w.to_owned())),
        1 => (0..90).prop_map(|n| ("config.set", format!("heartbeat {n}"))),
        1 => (0..3).prop_map(|n| ("config.set", format!("jobs-history-count {n}"))),
        1 => (id, 0..3, 0..9).prop_map(|(id, n, life)| {
            ("throttle.set", format!("{id} {n} {life}"))
        }),
    ]
}

fn options() -> impl Strategy<Value = String> {
    let option = select(vec![
        "",
        " priority 5",
        " retries 0",
        " retries 1",
        " tags [\"x\",1]",
        " depends [\"a\",\"b\"]",
        " throttles [\"t\"]",
    ]);
    (select(vec!["0", "0", "30"]), option).prop_map(|(delay, option)| format!("{delay}{option}"))
}

/// A call in one of two namespaces, at a time that may be before the last one.
fn any_call() -> impl Strategy<Value = Command> {
    let time = select(vec!["0", "1.5", "20.25", "60", "75.1", "300", "90000"]);
    let namespace = select(vec![Namespace::default(), other()]);
    let generation = select(vec![Generation::Two, Generation::Two, Generation::Three]);
    let calls = (namespace, generation, time, arguments());
    calls.prop_map(|(namespace, generation, time, (command, arguments))| {
        let words = text(&format!("{command} {time} {arguments}"));
        request(&namespace, QlessRequest::Script { generation, words })
    })
}

/// The answers and messages of a series of calls, and the final state.
type Course = (
    Vec<QlessAnswer>,
    Vec<(Namespace, QlessMessage)>,
    Vec<String>,
);

fn course(calls: &[Command], restarts: &[usize]) -> Course {
    let mut world = World::new();
    let mut answers = Vec::new();
    for (place, call) in calls.iter().enumerate() {
        answers.push(answer(world.ok(call.clone())));
        world.pass(std::time::Duration::from_secs(2));
        if restarts.contains(&place) {
            world.restart();
        }
    }
    world.restart();
    (
        answers,
        world.messages,
        without_numbers(world.engine.dump()),
    )
}

/// State, queue and attempt of each job, by namespace and id.
type Standings = BTreeMap<(Namespace, JobId), (JobState, Queue, u32)>;

/// The jobs as queries show them.
fn shown(world: &mut World) -> Standings {
    let mut standings = Standings::new();
    for namespace in [Namespace::default(), other()] {
        let query = JobQuery {
            namespace: namespace.clone(),
            limit: 1_000,
            ..JobQuery::default()
        };
        let query = Query::ExternalJobs(Box::new(query));
        let Reply::ExternalJobs(found, None) = world.ok(Command::Query(Box::new(query))) else {
            panic!("there are few jobs");
        };
        for (_, ExternalJobView { record, .. }) in found {
            let stands = (record.state, record.queue, record.attempt);
            standings.insert((namespace.clone(), record.id), stands);
        }
    }
    standings
}

/// Applies events to the jobs, and checks that each continues from the previous one.
fn follow(standings: &mut Standings, events: &[Event]) {
    for event in events {
        let name = |job: &JobId| (event.namespace.clone(), job.clone());
        match &event.happening {
            Happening::JobMoved {
                key,
                job,
                queue,
                from,
                to,
                attempt,
                ..
            } => {
                assert_eq!(*key, JobKey::OF_QLESS);
                let after = (*to, queue.clone(), *attempt);
                let before = standings.insert(name(job), after.clone());
                assert_ne!(before.as_ref(), Some(&after), "{event:?} moves nothing");
                assert_eq!(*from, before.map(|it| it.0), "{event:?}");
            }
            Happening::JobRemoved { job, .. } => {
                assert!(standings.remove(&name(job)).is_some(), "{event:?}");
            }
            other => panic!("{other:?} is not of qless"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The events of each call describe the state of every job, and contain no move that did not happen.
    #[test]
    fn events_tell_where_all_jobs_stand(
        calls in vec(any_call(), 1..120),
        restarts in vec(0..120_usize, 0..4),
    ) {
        let mut world = World::new();
        let mut standings = Standings::new();
        for (place, call) in calls.into_iter().enumerate() {
            let told = world.events.len();
            let words = format!("{call:?}");
            drop(answer(world.ok(call)));
            follow(&mut standings, &world.events[told..]);
            prop_assert_eq!(&standings, &shown(&mut world), "after {}", words);
            if restarts.contains(&place) {
                let told = world.events.len();
                world.restart();
                prop_assert_eq!(world.events.len(), told);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The rows rebuild the state exactly, without a visible difference (`rel A3`).
    #[test]
    fn random_calls_come_out_the_same_with_and_without_restarts(
        calls in vec(any_call(), 1..120),
        restarts in vec(0..120_usize, 0..12),
    ) {
        prop_assert_eq!(course(&calls, &restarts), course(&calls, &[]));
    }
}

/// The dump of an engine without the numbers of qless rows, because a restart may reuse those of removed rows.
fn without_numbers(dump: Vec<String>) -> Vec<String> {
    let without = |line: String| match line.split_once("QlessJob { number: ") {
        Some((before, rest)) => {
            let (_, rest) = rest.split_once(", ").expect("more follows");
            format!("{before}QlessJob {{ {rest}")
        }
        None => line,
    };
    let mut lines: Vec<String> = dump.into_iter().map(without).collect();
    lines.sort();
    lines
}
