//! Calls of qless through a running shard: messages go out before the reply and never before the commit, a full
//! device refuses calls that add bytes, and what was answered survives a power cut.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::kit::{Fault, TestShard};
use ganger_shard::{CallError, Handle, Health, Hooks, ManualClock, Settings, Shard};
use ganger_store_embedded::EmbeddedStore;
use ganger_types::qless::{Generation, QlessReply, QlessRequest};
use ganger_types::{
    Bytes, Command, ExternalReply, Namespace, QlessAnswer, QlessCall, Reply, ShardId, Timestamp,
};

fn script(words: &str) -> Command {
    let words = words.split(' ').map(str::to_owned).map(Bytes::from);
    Command::from(QlessCall {
        namespace: Namespace::default(),
        request: QlessRequest::Script {
            generation: Generation::Two,
            words: words.collect(),
        },
    })
}

async fn try_call(handle: &Handle, words: &str) -> Result<QlessAnswer, CallError> {
    match handle.call(script(words)).await? {
        Reply::External(ExternalReply::Qless(answer)) => Ok(answer),
        other => panic!("not an answer of qless: {other:?}"),
    }
}

async fn call(handle: &Handle, words: &str) -> QlessReply {
    let answer = try_call(handle, words).await.expect("in service");
    answer.unwrap_or_else(|refused| panic!("{words} was refused: {refused:?}"))
}

/// Payloads of the messages received so far.
type ReceivedMessages = Arc<Mutex<Vec<String>>>;

fn listen(handle: &Handle) -> ReceivedMessages {
    let heard = ReceivedMessages::default();
    let to = Arc::clone(&heard);
    handle.listen(Arc::new(move |messages| {
        let texts = messages
            .iter()
            .map(|(_, message)| String::from_utf8_lossy(&message.payload).into_owned());
        to.lock().expect("no test panics with it").extend(texts);
    }));
    heard
}

fn heard(heard: &ReceivedMessages) -> Vec<String> {
    heard.lock().expect("no test panics with it").clone()
}

fn put_message(jid: &str) -> String {
    format!(r#"{{"jid":"{jid}","event":"put","queue":"q"}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_once_their_turn_is_durable_and_before_its_answer() {
    let bench = TestShard::start().await;
    let listener = listen(&bench.handle);
    let arrived = bench.control.arrived();
    bench.control.hold();
    let handle = bench.handle.clone();
    let put = tokio::spawn(async move { call(&handle, "put 1 w q a k {} 0").await });
    bench.control.wait_arrived(arrived + 1);
    assert_eq!(heard(&listener), [""; 0], "nothing is durable yet");
    bench.control.release();
    put.await.expect("no panic");
    assert_eq!(heard(&listener), [put_message("a")]);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_later_turns_come_later_also_of_calls_that_change_nothing() {
    let bench = TestShard::start().await;
    let listener = listen(&bench.handle);
    let arrived = bench.control.arrived();
    bench.control.hold();
    let spawn_call = |words: &'static str| {
        let handle = bench.handle.clone();
        tokio::spawn(async move { call(&handle, words).await })
    };
    let first = spawn_call("put 1 w q a k {} 0");
    bench.control.wait_arrived(arrived + 1);
    // The call changes nothing, but must not overtake.
    let second = spawn_call("config.unset 2 nothing");
    let at_the_door = |count| {
        let gauges = bench.handle.metrics().gauges;
        gauges.contains(&("inbox_commands", count))
    };
    while !at_the_door(2) {
        tokio::task::yield_now().await;
    }
    bench.control.release();
    first.await.expect("no panic");
    second.await.expect("no panic");
    let unset = r#"{"event":"config_unset","option":"nothing"}"#.to_owned();
    assert_eq!(heard(&listener), [put_message("a"), unset]);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_failed_tells_nothing_and_leaves_nothing() {
    for fault in [Fault::NotApplied, Fault::UnknownAndLost] {
        let bench = TestShard::start().await;
        let listener = listen(&bench.handle);
        bench.control.script(&[fault]);
        let lost = try_call(&bench.handle, "put 1 w q a k {} 0").await;
        assert!(
            matches!(lost, Err(CallError::Unavailable { .. })),
            "{fault:?}"
        );
        bench.handle.ready().await;
        assert_eq!(call(&bench.handle, "get 2 a").await, QlessReply::Nil);
        assert_eq!(heard(&listener), [""; 0], "{fault:?}");
        call(&bench.handle, "put 3 w q b k {} 0").await;
        assert_eq!(heard(&listener), [put_message("b")], "{fault:?}");
        bench.handle.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_commit_turns_out_to_be_there_tells_its_messages_once() {
    let bench = TestShard::start().await;
    let listener = listen(&bench.handle);
    bench.control.script(&[Fault::UnknownButThere]);
    call(&bench.handle, "put 1 w q a k {} 0").await;
    assert_eq!(heard(&listener), [put_message("a")]);
    assert_ne!(call(&bench.handle, "get 2 a").await, QlessReply::Nil);
    assert_eq!(heard(&listener).len(), 1);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_nobody_listens_for_are_not_kept() {
    let bench = TestShard::start().await;
    call(&bench.handle, "put 1 w q a k {} 0").await;
    let listener = listen(&bench.handle);
    call(&bench.handle, "put 1 w q b k {} 0").await;
    assert_eq!(heard(&listener), [put_message("b")]);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_device_refuses_what_brings_new_bytes_and_lets_jobs_go_on() {
    let bench = TestShard::start().await;
    for words in [
        "put 1 w q a k {} 0",
        "put 1 w q b k {} 0",
        "put 1 w q c k {} 0",
    ] {
        call(&bench.handle, words).await;
    }
    bench.control.set_free(1_000);
    bench.clock.advance(Duration::from_secs(2));
    while bench.handle.health() != Health::Full {
        tokio::task::yield_now().await;
    }
    for words in [
        "put 2 w q d k {} 0",
        "requeue 2 w q a k {} 0",
        "recur 2 q r k {} interval 60 0",
        "log 2 a message",
        "tag 2 add a x",
        "config.set 2 heartbeat 70",
    ] {
        let refused = try_call(&bench.handle, words).await;
        assert!(
            matches!(refused, Err(CallError::Full { .. })),
            "{words}: {refused:?}"
        );
    }
    for words in [
        "pop 3 q w 3",
        "heartbeat 4 a w",
        "complete 5 a w q {}",
        "fail 5 b w group message",
        "cancel 6 c",
        "unfail 6 q group",
        "get 7 a",
    ] {
        call(&bench.handle, words).await;
    }
    bench.handle.stop().await;
}

fn start(path: &Path) -> Handle {
    let store = EmbeddedStore::create_or_open(path, &ShardId::default()).expect("it opens");
    let settings = Settings {
        group_wait: Duration::ZERO,
        ..Settings::default()
    };
    let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
    Shard::start(store, settings, clock, Hooks::default()).expect("it starts")
}

/// Copies the files of a store as they are now, as if the machine had stopped.
fn freeze(path: &Path, into: &Path) -> PathBuf {
    let copy = into.join("copy.db");
    for suffix in ["", "-wal", "-turns"] {
        let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        std::fs::copy(name(path), name(&copy)).expect("files can be copied");
    }
    copy
}

/// Returns the answers to all queries.
async fn look(handle: &Handle) -> Vec<QlessReply> {
    let mut all = Vec::new();
    for words in [
        "multiget 90 a b c d e",
        "queues 90",
        "workers 90",
        "workers 90 w",
        "jobs 90 complete",
        "jobs 90 recurring q",
        "failed 90",
        "failed 90 group",
        "stats 90 q 90",
        "tag 90 get x",
        "tag 90 top",
        "track 90",
        "recur.get 90 r",
        "config.get 90",
        "pop 90 q w 5",
        "get 90 d",
    ] {
        all.push(call(handle, words).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_there_after_the_power_was_cut() {
    let directory = tempfile::TempDir::new().expect("a directory can be made");
    let path = directory.path().join("1.db");
    let handle = start(&path);
    for words in [
        "config.set 0.5 heartbeat 33",
        "put 1.5 w q a k {\"text\":1} 0 tags [\"x\",1] priority 2.5",
        "put 1.5 w q b k {} 0 depends [\"a\"] tags [\"x\"]",
        "put 600 w q c k [] 0 retries 1",
        "put 0 w q d k {} 30",
        "put 7 w q e k {} 0",
        "recur 8 q r k {} interval 10.5 1",
        "track 9 track c",
        "pop 10.125 q w 5",
        "fail 11 c w group why",
        "complete 12 a w q {}",
    ] {
        call(&handle, words).await;
    }
    let copy = freeze(&path, directory.path());
    let expected = look(&handle).await;
    handle.stop().await;
    let report = ganger_store_embedded::check(&copy, |_| {}).expect("it can be read");
    assert_eq!(report.findings, []);
    assert!(report.external_rows > 10, "{report:?}");
    let again = start(&copy);
    assert_eq!(look(&again).await, expected);
    again.stop().await;
}
