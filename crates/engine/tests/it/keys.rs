//! Raw keys: random calls against a plain model, restarts in between, and the rules one by one.

#![expect(clippy::unnecessary_wraps, reason = "answers are compared whole")]

use std::time::Duration;

use crate::support::World;
use crate::support::key_model::Model;
use ganger_types::keys::{
    Condition, End, Expiry, KeyAnswers, KeyCall, KeyCalls, KeyError, KeyKind, KeyReply, TimeLeft,
};
use ganger_types::{Bytes, Command, ExternalReply, Namespace, Reply};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(crate) type KeyResult = Result<KeyReply, KeyError>;

pub(crate) fn run(world: &mut World, calls: Vec<KeyCall>) -> Vec<KeyResult> {
    let calls = KeyCalls {
        namespace: Namespace::default(),
        watched: Vec::new(),
        calls,
    };
    match world.run(Command::from(calls)) {
        Ok(Reply::External(ExternalReply::Keys(KeyAnswers::Each(answers)))) => answers,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn call(world: &mut World, one: KeyCall) -> KeyResult {
    run(world, vec![one]).remove(0)
}

pub(crate) fn b(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn set(key: &str, value: &str, expiry: Expiry) -> KeyCall {
    KeyCall::Set {
        key: b(key),
        value: b(value),
        expiry,
        condition: Condition::Always,
        gets: false,
    }
}

pub(crate) fn push(key: &str, values: &[&str]) -> KeyCall {
    KeyCall::Push {
        key: b(key),
        end: End::Left,
        values: values.iter().map(|value| b(value)).collect(),
        condition: Condition::Always,
    }
}

pub(crate) fn range(key: &str) -> KeyCall {
    KeyCall::Range {
        key: b(key),
        start: 0,
        stop: -1,
    }
}

fn names(pattern: &str, after: Option<Bytes>) -> KeyCall {
    KeyCall::Names {
        pattern: b(pattern),
        after,
        is_whole: false,
    }
}

pub(crate) fn values(texts: &[&str]) -> KeyResult {
    Ok(KeyReply::Values(texts.iter().map(|text| b(text)).collect()))
}

fn key() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(b("a")), Just(b("b")), Just(b("c"))]
}

fn word() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(b("x")), Just(b("y")), Just(b("")), Just(b("12"))]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Left), Just(End::Right)]
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        Just(Expiry::Never),
        Just(Expiry::Kept),
        (1_u64..20).prop_map(|seconds| Expiry::After(Duration::from_secs(seconds))),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Always),
        Just(Condition::IfAbsent),
        Just(Condition::IfPresent)
    ]
}

fn any_call() -> impl Strategy<Value = KeyCall> {
    let index = || -6_i64..6;
    prop_oneof![
        1 => key().prop_map(|key| KeyCall::Get { key }),
        1 => (key(), word(), expiry(), condition(), any::<bool>()).prop_map(
            |(key, value, expiry, condition, gets)| KeyCall::Set {
                key,
                value,
                expiry,
                condition,
                gets
            }
        ),
        1 => (key(), word()).prop_map(|(key, value)| KeyCall::Append { key, value }),
        1 => vec(key(), 1..3).prop_map(|keys| KeyCall::Delete { keys }),
        1 => vec(key(), 1..3).prop_map(|keys| KeyCall::Exists { keys }),
        1 => (key(), 1_u64..20).prop_map(|(key, seconds)| KeyCall::Expire {
            key,
            expiry: Expiry::After(Duration::from_secs(seconds)),
        }),
        1 => key().prop_map(|key| KeyCall::Expire {
            key,
            expiry: Expiry::Never
        }),
        4 => (key(), end(), vec(word(), 1..5)).prop_map(|(key, end, values)| KeyCall::Push {
            key,
            end,
            values,
            condition: Condition::Always
        }),
        1 => (key(), end(), option::of(0_u64..4))
            .prop_map(|(key, end, count)| KeyCall::Pop { key, end, count }),
        2 => (key(), key(), end(), end()).prop_map(|(from, to, from_end, to_end)| KeyCall::Move {
            from,
            to,
            from_end,
            to_end
        }),
        2 => (key(), index(), index()).prop_map(|(key, start, stop)| KeyCall::Range { key, start, stop }),
        1 => (key(), index(), index()).prop_map(|(key, start, stop)| KeyCall::Trim { key, start, stop }),
        1 => (key(), -2_i64..3, word()).prop_map(|(key, count, value)| KeyCall::Remove { key, count, value }),
        2 => (key(), any::<bool>(), word(), word()).prop_map(|(key, is_before, pivot, value)| {
            KeyCall::Insert {
                key,
                is_before,
                pivot,
                value,
            }
        }),
        1 => (key(), index(), word())
            .prop_map(|(key, index, value)| KeyCall::SetElement { key, index, value }),
        1 => (key(), index()).prop_map(|(key, index)| KeyCall::ElementAt { key, index }),
        1 => key().prop_map(|key| KeyCall::Length { key }),
        1 => Just(KeyCall::Count),
    ]
}

/// A turn of calls, time, or a restart.
#[derive(Clone, Debug)]
enum Step {
    Calls(Vec<KeyCall>),
    Time(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => vec(any_call(), 1..6).prop_map(Step::Calls),
        2 => (1_u64..10_000_000).prop_map(Step::Time),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    /// Every answer equals the model's, and the rows rebuild the whole state.
    #[test]
    fn calls_do_what_the_plain_model_does(steps in vec(step(), 1..60)) {
        let mut world = World::new();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Calls(calls) => {
                    let expected: Vec<_> = calls.iter().map(|one| model.call(one)).collect();
                    prop_assert_eq!(run(&mut world, calls), expected);
                }
                Step::Time(micros) => {
                    world.pass(Duration::from_micros(micros));
                    model.now += micros;
                }
                Step::Restart => world.restart(),
            }
        }
    }

    /// A scan returns no key twice, and returns each key that exists throughout.
    #[test]
    fn a_scan_gives_each_key_once_while_others_come_and_go(
        names in vec("[a-z]{1,3}", 1..40),
        others in vec(("[A-Z]{1,2}", any::<bool>()), 0..40),
        count in 1_u64..7,
    ) {
        let mut world = World::new();
        for name in &names {
            call(&mut world, set(name, "", Expiry::Never)).expect("a string");
        }
        let mut others = others.into_iter();
        let mut seen = Vec::new();
        let mut cursor = 0;
        loop {
            let page = KeyCall::Scan { cursor, count, pattern: None, kind: Some(KeyKind::String) };
            let Ok(KeyReply::Page(next, found)) = call(&mut world, page) else {
                panic!("no page");
            };
            seen.extend(found);
            if next == 0 {
                break;
            }
            cursor = next;
            if let Some((name, comes)) = others.next() {
                let change = if comes {
                    set(&name, "", Expiry::Never)
                } else {
                    KeyCall::Delete { keys: vec![b(&name)] }
                };
                call(&mut world, change).expect("it is a string or absent");
            }
        }
        seen.retain(|name| name[0].is_ascii_lowercase());
        seen.sort();
        let mut expected: Vec<Bytes> = names.iter().map(|name| b(name)).collect();
        expected.sort();
        expected.dedup();
        prop_assert_eq!(seen, expected);
    }
}

#[test]
fn a_long_list_is_searched_by_its_index_and_stays_in_order() {
    let mut world = World::new();
    let names: Vec<String> = (0..1_000).map(|n| (n % 500).to_string()).collect();
    let texts: Vec<&str> = names.iter().map(String::as_str).collect();
    call(&mut world, push("l", &texts)).expect("a list");
    for (count, left) in [(1, 1), (-1, 0)] {
        let gone = KeyCall::Remove {
            key: b("l"),
            count,
            value: b("7"),
        };
        assert_eq!(call(&mut world, gone), Ok(KeyReply::Number(1)));
        let find = KeyCall::Find {
            key: b("l"),
            value: b("7"),
            rank: 1,
            count: Some(0),
            compared_max: 0,
        };
        let Ok(KeyReply::Indexes(found)) = call(&mut world, find) else {
            panic!("no indexes");
        };
        assert_eq!(found.len(), left);
    }
    let all = KeyCall::Remove {
        key: b("l"),
        count: 0,
        value: b("499"),
    };
    assert_eq!(call(&mut world, all), Ok(KeyReply::Number(2)));
    let mut expected: Vec<&str> = texts.into_iter().rev().collect();
    expected.retain(|text| !["7", "499"].contains(text));
    assert_eq!(call(&mut world, range("l")), values(&expected));
    world.restart();
    assert_eq!(call(&mut world, range("l")), values(&expected));
}

#[test]
fn elements_are_found_by_rank_from_either_end() {
    let mut world = World::new();
    // From the left: c b a c b a.
    call(&mut world, push("l", &["a", "b", "c", "a", "b", "c"])).expect("a list");
    let find = |rank, count, compared_max| KeyCall::Find {
        key: b("l"),
        value: b("a"),
        rank,
        count,
        compared_max,
    };
    let table = [
        (find(1, None, 0), KeyReply::Number(2)),
        (find(2, None, 0), KeyReply::Number(5)),
        (find(3, None, 0), KeyReply::Nil),
        (find(-1, None, 0), KeyReply::Number(5)),
        (find(-2, None, 0), KeyReply::Number(2)),
        (find(1, Some(0), 0), KeyReply::Indexes(vec![2, 5])),
        (find(-1, Some(0), 0), KeyReply::Indexes(vec![5, 2])),
        (find(1, Some(1), 0), KeyReply::Indexes(vec![2])),
        (find(1, Some(0), 3), KeyReply::Indexes(vec![2])),
        (find(1, None, 2), KeyReply::Nil),
    ];
    for (one, expected) in table {
        assert_eq!(call(&mut world, one.clone()), Ok(expected), "{one:?}");
    }
}

#[test]
fn an_expiry_counts_down_also_over_a_restart() {
    let mut world = World::new();
    let left = |seconds| {
        Ok(KeyReply::TimeLeft(TimeLeft::For(Duration::from_secs(
            seconds,
        ))))
    };
    let ask = || KeyCall::TimeLeft { key: b("k") };
    let ten = Expiry::After(Duration::from_secs(10));
    call(&mut world, set("k", "v", ten)).expect("a string");
    assert_eq!(call(&mut world, ask()), left(10));
    world.pass(Duration::from_secs(4));
    world.restart();
    assert_eq!(call(&mut world, ask()), left(6));
    // Writing the key again removes its expiry, unless the expiry is kept.
    call(&mut world, set("k", "w", Expiry::Kept)).expect("a string");
    assert_eq!(call(&mut world, ask()), left(6));
    world.pass(Duration::from_secs(6));
    assert_eq!(
        call(&mut world, ask()),
        Ok(KeyReply::TimeLeft(TimeLeft::Absent))
    );
    assert!(
        world.rows.external.is_empty(),
        "what has expired is gone from the store"
    );
}

#[test]
fn nothing_is_applied_if_a_watched_key_has_changed() {
    let mut world = World::new();
    call(&mut world, set("k", "v", Expiry::Never)).expect("a string");
    let ask = |key: &str| KeyCall::Revision { key: b(key) };
    let Ok(KeyReply::Revision(seen)) = call(&mut world, ask("k")) else {
        panic!("no revision");
    };
    assert_eq!(call(&mut world, ask("none")), Ok(KeyReply::Revision(0)));
    let mut exec = |watched: Vec<(&str, u64)>, value: &str| {
        let calls = KeyCalls {
            namespace: Namespace::default(),
            watched: watched
                .into_iter()
                .map(|(key, seen)| (b(key), seen))
                .collect(),
            calls: vec![set("k", value, Expiry::Never)],
        };
        world.run(Command::from(calls))
    };
    let done = Ok(Reply::External(ExternalReply::Keys(KeyAnswers::Each(
        vec![Ok(KeyReply::Done)],
    ))));
    assert_eq!(exec(vec![("k", seen), ("none", 0)], "w"), done);
    let changed = Ok(Reply::External(ExternalReply::Keys(KeyAnswers::Changed)));
    assert_eq!(exec(vec![("k", seen)], "x"), changed);
    assert_eq!(exec(vec![("none", 7)], "x"), changed);
    assert_eq!(
        call(&mut world, KeyCall::Get { key: b("k") }),
        Ok(KeyReply::Value(b("w")))
    );
}

#[test]
fn namespaces_do_not_see_each_others_keys() {
    let mut world = World::new();
    call(&mut world, set("k", "v", Expiry::Never)).expect("a string");
    let calls = KeyCalls {
        namespace: Namespace::from_static("other"),
        watched: Vec::new(),
        calls: vec![
            KeyCall::Get { key: b("k") },
            KeyCall::Clear,
            KeyCall::Count,
            names("*", None),
        ],
    };
    let answers = vec![
        Ok(KeyReply::Nil),
        Ok(KeyReply::Done),
        Ok(KeyReply::Number(0)),
        Ok(KeyReply::Names(Vec::new(), None)),
    ];
    assert_eq!(
        world.run(Command::from(calls)),
        Ok(Reply::External(ExternalReply::Keys(KeyAnswers::Each(
            answers
        ))))
    );
    assert_eq!(call(&mut world, KeyCall::Count), Ok(KeyReply::Number(1)));
}
