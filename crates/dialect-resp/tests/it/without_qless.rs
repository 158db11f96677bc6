//! A build without qless: scripts are refused with the name of the feature, and stored qless state stays.

use crate::kit::World;
use ganger_types::qless::{Generation, QlessCall, QlessReply, QlessRequest};
use ganger_types::{Bytes, Command, ExternalReply, Namespace, Reply};

/// The engine's answer to a direct call of qless.
fn call(world: &World, line: &str) -> QlessReply {
    let words = line
        .split(' ')
        .map(|word| Bytes::copy_from_slice(word.as_bytes()));
    let call = QlessCall {
        namespace: Namespace::default(),
        request: QlessRequest::Script {
            generation: Generation::Two,
            words: words.collect(),
        },
    };
    match world.call(Command::from(call)) {
        Reply::External(ExternalReply::Qless(answer)) => answer.expect("it is accepted"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_script_is_refused_with_the_name_of_the_feature() {
    let world = World::new();
    let mut client = world.client();
    for line in [
        "EVAL x 0",
        "EVAL_RO x 0",
        "EVALSHA x 0",
        "EVALSHA_RO x 0",
        "SCRIPT LOAD x",
        "SCRIPT EXISTS x",
        "SCRIPT FLUSH",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = client.ask(&words);
        assert!(
            answer.starts_with("-ERR") && answer.contains("the Cargo feature `qless`"),
            "{line}: {answer}"
        );
    }
    assert_eq!(client.ask(&["MULTI"]), "+OK");
    assert_eq!(client.ask(&["EVALSHA", "x", "0"]), "+QUEUED");
    assert_eq!(client.ask(&["SET", "a", "1"]), "+QUEUED");
    let answer = client.ask(&["EXEC"]);
    assert!(
        answer.starts_with("*2 -ERR") && answer.ends_with("+OK"),
        "{answer}"
    );
}

#[test]
fn qless_state_survives_a_flush_of_the_keys() {
    let world = World::new();
    let put = call(&world, "put 1 w q j k {} 0");
    assert_eq!(put, QlessReply::Text(Bytes::from_static(b"j")));
    let mut client = world.client();
    assert_eq!(client.ask(&["SET", "a", "1"]), "+OK");
    for flush in ["FLUSHDB", "FLUSHALL"] {
        assert_eq!(client.ask(&[flush]), "+OK");
        assert_eq!(client.ask(&["GET", "a"]), "$-1");
        let kept = call(&world, "get 2 j");
        assert!(matches!(kept, QlessReply::Text(_)), "{kept:?}");
    }
}
