//! The commands `queues`, `length`, `pause`, `unpause`, `queue.forget` and `stats`.

use ganger_types::qless::{Generation, QlessReply, QlessRequest, QlessSet};
use serde_json::json;

use super::caller::Caller;

#[test]
fn each_wrong_argument_is_named() {
    let mut it = Caller::new();
    let queue = "Queue(): no queue name provided";
    assert_eq!(it.refused("length 1"), queue);
    assert_eq!(it.refused("stats 1"), queue);
    let date = r#"Stats(): Arg "date" missing or not a number: "#;
    assert_eq!(it.refused("stats 1 q"), format!("{date}nil"));
    assert_eq!(it.refused("stats 1 q x"), format!("{date}x"));
    for command in ["pause", "unpause", "queue.forget"] {
        it.refused(&format!("{command} 1"));
    }
}

/// Returns a queue with one job of each kind.
fn busy() -> Caller {
    let mut it = Caller::new();
    it.ask("put 1 w q held k {} 0");
    it.ask("pop 1 q w 1");
    it.ask("put 1 w q lost k {} 0");
    it.ask("pop 2 q w 1");
    it.ask("put 1 w q a k {} 0");
    it.ask("put 1 w q b k {} 0");
    it.ask("put 1 w q later k {} 1000");
    it.ask("put 1 w q waits k {} 0 depends [\"a\"]");
    it.ask("recur 1 q r k {} interval 60 500");
    it
}

#[test]
fn a_queue_is_counted_by_kind() {
    let mut it = busy();
    let expected = json!({
        "name": "q", "waiting": 2, "running": 1, "stalled": 1, "scheduled": 1, "depends": 1,
        "recurring": 1, "paused": false,
    });
    assert_eq!(it.json("queues 61.5 q"), expected);
    assert_eq!(it.json("queues 61.5"), json!([expected]));
    assert_eq!(it.number("length 61.5 q"), 5);
    it.speak(Generation::Three);
    assert_eq!(it.json("queues 61.5 q")["throttled"], 0);
}

#[test]
fn plain_counts_and_next_runs_are_answered_too() {
    let mut it = busy();
    let q = || "q".into();
    for (set, count) in [
        (QlessSet::Locks, 2),
        (QlessSet::Work, 2),
        (QlessSet::Scheduled, 1),
        (QlessSet::Depends, 1),
        (QlessSet::Recur, 1),
    ] {
        let reply = it.request(QlessRequest::Count { queue: q(), set });
        assert_eq!(reply, QlessReply::Number(count), "{set:?}");
    }
    let next = |it: &mut Caller, jid: &'static str| {
        it.request(QlessRequest::NextRun {
            queue: q(),
            jid: jid.into(),
        })
    };
    assert_eq!(next(&mut it, "r"), QlessReply::Score(501.0));
    assert_eq!(next(&mut it, "a"), QlessReply::Nil);
}

#[test]
fn asking_makes_those_ready_that_are_due() {
    let mut it = busy();
    let counts = it.json("queues 1001 q");
    assert_eq!(counts["waiting"], 3);
    assert_eq!(counts["scheduled"], 0);
    assert_eq!(it.json("get 1001 later")["state"], "waiting");
    // The query for all known queues does the same.
    it.ask("put 1001 w q late k {} 10");
    assert_eq!(it.json("queues 1011")[0]["waiting"], 4);
}

#[test]
fn a_queue_does_not_become_known_by_asking() {
    let mut it = Caller::new();
    assert_eq!(it.text("queues 1"), "{}");
    assert_eq!(it.json("queues 1 q")["name"], "q");
    assert_eq!(it.number("length 1 q"), 0);
    it.ask("pop 1 q w 1");
    it.ask("peek 1 q 1");
    assert_eq!(it.text("queues 1"), "{}");
}

#[test]
fn known_queues_come_by_when_they_were_first_seen_and_ties_by_name() {
    let mut it = Caller::new();
    for (at, queue) in [(3, "a"), (2, "c"), (2, "b"), (1, "a")] {
        it.ask(&format!("put {at} w {queue} j{at}{queue} k {{}} 0"));
    }
    let names = |it: &mut Caller| {
        let queues = it.json("queues 9");
        let queues = queues.as_array().expect("some").clone();
        queues
            .iter()
            .map(|it| it["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&mut it), ["b", "c", "a"]);
    it.nil("queue.forget 9 b x");
    assert_eq!(names(&mut it), ["c", "a"]);
    // The jobs of the queue stay, and the queue is known again once it is used.
    assert_eq!(it.number("length 9 b"), 1);
    it.ask("put 9 w b again k {} 0");
    assert_eq!(names(&mut it), ["c", "a", "b"]);
}

#[test]
fn a_paused_queue_gives_nothing_out_until_it_is_unpaused() {
    let mut it = Caller::new();
    it.ask("put 1 w q j k {} 0");
    it.nil("pause 1 q other");
    it.nil("pause 1 q");
    assert_eq!(it.json("queues 1 q")["paused"], true);
    assert_eq!(it.text("pop 1 q w 1"), "{}");
    it.nil("unpause 1 q nobody");
    assert_eq!(it.json("queues 1 q")["paused"], false);
    assert_eq!(it.json("queues 1 other")["paused"], true);
    assert_eq!(it.json("pop 1 q w 1")[0]["jid"], "j");
    // A pause does not make a queue known.
    assert_eq!(it.json("queues 1").as_array().map(Vec::len), Some(1));
}

#[test]
fn statistics_are_those_of_the_day_of_the_date() {
    let mut it = Caller::new();
    it.ask("put 86400 w q j k {} 0");
    it.ask("pop 86401 q w 1");
    it.ask("complete 86408.5 j w q {}");
    let day = it.json("stats 0 q 172799.9");
    assert_eq!(day["wait"]["count"], 1);
    assert_eq!(day["wait"]["mean"], 1);
    assert_eq!(day["run"]["mean"].to_string(), "7.5");
    assert_eq!(day["run"]["histogram"][7], 1);
    for other in ["86399", "172800", "-1"] {
        assert_eq!(it.json(&format!("stats 0 q {other}"))["wait"]["count"], 0);
    }
    assert_eq!(it.json("stats 0 other 86400")["wait"]["count"], 0);
}

#[test]
fn all_state_can_be_cleared_at_once() {
    let mut it = busy();
    it.ask("config.set 1 heartbeat 5");
    assert_eq!(it.request(QlessRequest::Clear), QlessReply::Nil);
    assert_eq!(it.text("queues 1"), "{}");
    assert_eq!(it.number("config.get 1 heartbeat"), 60);
    it.nil("get 1 a");
    assert_eq!(it.number("length 1 q"), 0);
}
