//! Waiting for elements of lists: served in order within the push, durable before visible, never lost.

#![expect(clippy::unnecessary_wraps, reason = "answers are compared whole")]

use std::time::Duration;

use crate::kit::{Fault, TestShard, poll_once};
use ganger_shard::{CallError, Health, Settings};
use ganger_types::keys::{Condition, End, Expiry, KeyAnswers, KeyCall, KeyError, KeyReply};
use ganger_types::{Bytes, Command, ExternalReply, KeyCalls, KeyWait, Namespace, Popped, Reply};

type Called = Result<KeyReply, KeyError>;

fn b(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn calls(calls: Vec<KeyCall>) -> Command {
    Command::from(KeyCalls {
        namespace: Namespace::default(),
        watched: Vec::new(),
        calls,
    })
}

async fn run(bench: &TestShard, all: Vec<KeyCall>) -> Vec<Called> {
    match bench.handle.call(calls(all)).await {
        Ok(Reply::External(ExternalReply::Keys(KeyAnswers::Each(answers)))) => answers,
        other => panic!("{other:?}"),
    }
}

fn push(key: &'static str, values: &[&'static str]) -> KeyCall {
    KeyCall::Push {
        key: b(key),
        end: End::Left,
        values: values.iter().map(|value| b(value)).collect(),
        condition: Condition::Always,
    }
}

fn all_of(key: &'static str) -> KeyCall {
    KeyCall::Range {
        key: b(key),
        start: 0,
        stop: -1,
    }
}

fn values(texts: &[&'static str]) -> Called {
    Ok(KeyReply::Values(texts.iter().map(|text| b(text)).collect()))
}

/// Builds a request that pops from the right of the first of `lists`, to the left of `to`.
fn wait(lists: &[&'static str], to: Option<&'static str>) -> KeyWait {
    KeyWait {
        namespace: Namespace::default(),
        lists: lists.iter().map(|list| b(list)).collect(),
        end: End::Right,
        to: to.map(|to| (b(to), End::Left)),
    }
}

fn popped(list: &'static str, value: &'static str) -> Popped {
    Ok(Some((b(list), b(value))))
}

async fn until_waiting(bench: &TestShard, count: u64) {
    let waiting = || {
        let gauges = bench.handle.metrics().gauges;
        gauges
            .into_iter()
            .find(|(name, _)| *name == "waiting_pops")
            .map_or(0, |(_, value)| value)
    };
    while waiting() != count {
        tokio::task::yield_now().await;
    }
}

type Waiting = tokio::task::JoinHandle<Popped>;

/// Begins to wait; the request is registered when this returns.
async fn begin(bench: &TestShard, wait: KeyWait, already: u64) -> Waiting {
    let handle = bench.handle.clone();
    let task = tokio::spawn(async move { handle.pop(wait, None).await.expect("the shard runs") });
    until_waiting(bench, already + 1).await;
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_comes_at_once_from_the_first_list_that_has_one() {
    let bench = TestShard::start().await;
    run(&bench, vec![push("b", &["1", "2"]), push("c", &["3"])]).await;
    let wait = wait(&["a", "b", "c"], None);
    let none = Some(Duration::ZERO);
    let pop = || bench.handle.pop(wait.clone(), none);
    assert_eq!(pop().await, Ok(popped("b", "1")));
    assert_eq!(pop().await, Ok(popped("b", "2")));
    assert_eq!(pop().await, Ok(popped("c", "3")));
    assert_eq!(pop().await, Ok(Ok(None)));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_serves_those_who_waited_longest_and_nobody_sees_it_between() {
    let bench = TestShard::start().await;
    let first = begin(&bench, wait(&["q"], Some("p")), 0).await;
    let second = begin(&bench, wait(&["x", "q"], Some("p")), 1).await;
    let third = begin(&bench, wait(&["q"], None), 2).await;
    let pushed = run(&bench, vec![push("q", &["1", "2"]), all_of("q")]).await;
    // The calls of one request see their own effects; waiting clients are served after them.
    assert_eq!(pushed, [Ok(KeyReply::Number(2)), values(&["2", "1"])]);
    assert_eq!(first.await.expect("no panic"), popped("q", "1"));
    assert_eq!(second.await.expect("no panic"), popped("q", "2"));
    until_waiting(&bench, 1).await;
    let left = run(&bench, vec![all_of("q"), all_of("p")]).await;
    assert_eq!(left, [values(&[]), values(&["2", "1"])]);
    // An element that is moved to a list with a waiting client is passed on to that client.
    let chained = begin(&bench, wait(&["p2"], Some("q")), 1).await;
    let moved = KeyCall::Move {
        from: b("p"),
        to: b("p2"),
        from_end: End::Right,
        to_end: End::Left,
    };
    assert_eq!(
        run(&bench, vec![moved]).await,
        [Ok(KeyReply::Value(b("1")))]
    );
    assert_eq!(chained.await.expect("no panic"), popped("p2", "1"));
    assert_eq!(third.await.expect("no panic"), popped("q", "1"));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_hears_of_an_element_before_its_move_is_durable() {
    let bench = TestShard::start().await;
    let waiting = begin(&bench, wait(&["q"], Some("p")), 0).await;
    bench.control.hold();
    let handle = bench.handle.clone();
    let pushing = tokio::spawn(async move { handle.call(calls(vec![push("q", &["1"])])).await });
    until_waiting(&bench, 0).await;
    assert!(!waiting.is_finished());
    bench.control.release();
    assert_eq!(waiting.await.expect("no panic"), popped("q", "1"));
    assert!(pushing.await.expect("no panic").is_ok());
    let bench = bench.restart().await;
    assert_eq!(run(&bench, vec![all_of("p")]).await, [values(&["1"])]);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_leaves_the_line() {
    let bench = TestShard::start().await;
    let gone = begin(&bench, wait(&["q"], Some("p")), 0).await;
    let stays = begin(&bench, wait(&["q"], Some("p")), 1).await;
    gone.abort();
    until_waiting(&bench, 1).await;
    run(&bench, vec![push("q", &["1"])]).await;
    assert_eq!(stays.await.expect("no panic"), popped("q", "1"));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_element_that_nobody_received_is_next_again() {
    let bench = TestShard::start().await;
    run(&bench, vec![push("q", &["1", "2"])]).await;
    for to in [None, Some("p")] {
        bench.control.hold();
        let arrived = bench.control.arrived();
        // The element is on its way when the client disconnects.
        let mut pop = Box::pin(bench.handle.pop(wait(&["q"], to), None));
        assert!(poll_once(pop.as_mut()).is_none());
        bench.control.wait_arrived(arrived + 1);
        drop(pop);
        bench.control.release();
        loop {
            let lists = run(&bench, vec![all_of("q"), all_of("p")]).await;
            if lists == [values(&["2", "1"]), values(&[])] {
                break;
            }
        }
    }
    // The element has arrived when the client disconnects.
    bench.control.hold();
    let mut pop = Box::pin(bench.handle.pop(wait(&["q"], None), None));
    assert!(poll_once(pop.as_mut()).is_none());
    bench.control.release();
    assert_eq!(run(&bench, vec![all_of("q")]).await, [values(&["2"])]);
    drop(pop);
    assert_eq!(run(&bench, vec![all_of("q")]).await, [values(&["2", "1"])]);
    // An element that was received but could not be passed on is put back by hand, once.
    let asked = wait(&["q"], Some("p"));
    assert_eq!(
        bench.handle.pop(asked.clone(), None).await,
        Ok(popped("q", "1"))
    );
    bench.handle.put_back(asked.clone(), b("q"), b("1"));
    bench.handle.put_back(asked, b("q"), b("1"));
    let lists = run(&bench, vec![all_of("q"), all_of("p")]).await;
    assert_eq!(lists, [values(&["2", "1"]), values(&[])]);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patience_ends_and_other_kinds_are_refused() {
    let bench = TestShard::start().await;
    let handle = bench.handle.clone();
    let soon = Some(Duration::from_secs(5));
    let asked = wait(&["q"], Some("s"));
    let patient = tokio::spawn(async move { handle.pop(asked, soon).await });
    until_waiting(&bench, 1).await;
    bench.clock.advance(Duration::from_secs(5));
    assert_eq!(patient.await.expect("no panic"), Ok(Ok(None)));
    let string = KeyCall::Set {
        key: b("s"),
        value: b(""),
        expiry: Expiry::Never,
        condition: Condition::Always,
        gets: false,
    };
    run(&bench, vec![string]).await;
    let refused = Ok(Err(KeyError::WrongKind));
    assert_eq!(bench.handle.pop(wait(&["s"], None), None).await, refused);
    // The target list is checked when an element is there; the element stays.
    let waiting = begin(&bench, wait(&["q"], Some("s")), 0).await;
    run(&bench, vec![push("q", &["1"])]).await;
    assert_eq!(waiting.await.expect("no panic"), Err(KeyError::WrongKind));
    assert_eq!(run(&bench, vec![all_of("q")]).await, [values(&["1"])]);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_are_served_after_a_commit_that_failed() {
    let bench = TestShard::start_with(Settings::default(), crate::kit::MemoryStore::new()).await;
    let waiting = begin(&bench, wait(&["q"], Some("p")), 0).await;
    let other = begin(&bench, wait(&["q"], Some("p")), 1).await;
    bench.control.script(&[Fault::NotApplied]);
    let failed = bench.handle.call(calls(vec![push("q", &["1"])])).await;
    assert!(failed.is_err(), "{failed:?}");
    // The client that the failed push served gets the error; the other one is still waiting.
    assert!(waiting.await.is_err(), "the test's task expects an element");
    run(&bench, vec![push("q", &["2"])]).await;
    assert_eq!(other.await.expect("no panic"), popped("q", "2"));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_element_goes_back_also_on_a_full_device_and_never_gets_lost_between() {
    let bench = TestShard::start().await;
    run(&bench, vec![push("q", &["1"]), push("r", &["2"])]).await;
    let (plain, moved) = (wait(&["q"], None), wait(&["r"], Some("p")));
    for asked in [&plain, &moved] {
        let taken = bench.handle.pop(asked.clone(), None).await;
        assert!(matches!(taken, Ok(Ok(Some(_)))), "{taken:?}");
    }
    bench.control.set_free(1_000);
    bench.clock.advance(Duration::from_secs(2));
    while bench.handle.health() != Health::Full {
        tokio::task::yield_now().await;
    }
    let refused = bench.handle.call(calls(vec![push("q", &["3"])])).await;
    assert!(
        matches!(refused, Err(CallError::Full { .. })),
        "{refused:?}"
    );
    bench.handle.put_back(plain, b("q"), b("1"));
    bench.handle.put_back(moved.clone(), b("r"), b("2"));
    let lists = run(&bench, vec![all_of("q"), all_of("r"), all_of("p")]).await;
    assert_eq!(lists, [values(&["1"]), values(&["2"]), values(&[])]);
    bench.control.set_free(1 << 40);
    bench.clock.advance(Duration::from_secs(2));
    while bench.handle.health() != Health::Ready {
        tokio::task::yield_now().await;
    }
    // The source is no list any more, so the element stays where it is.
    assert!(bench.handle.pop(moved.clone(), None).await.is_ok());
    let string = KeyCall::Set {
        key: b("r"),
        value: b(""),
        expiry: Expiry::Never,
        condition: Condition::Always,
        gets: false,
    };
    run(&bench, vec![string]).await;
    bench.handle.put_back(moved, b("r"), b("2"));
    assert_eq!(run(&bench, vec![all_of("p")]).await, [values(&["2"])]);
    bench.handle.stop().await;
}
