//! The worked examples in the description of the dialect, word for word, each on an empty database.

use crate::harness::Database;
use ganger_types::qless::{Generation, QlessReply, QlessRequest};
use serde_json::{Value, json};

fn database() -> Database {
    Database::new(Generation::Two)
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("the example is JSON")
}

#[test]
fn options_are_seven_until_one_is_set() {
    let mut it = database();
    assert_eq!(
        it.json("config.get 0"),
        read(
            r#"{"application":"qless","grace-period":10,"stats-history":30,"jobs-history":604800,
            "heartbeat":60,"jobs-history-count":50000,"histogram-history":7}"#
        )
    );
    assert_eq!(it.call("config.get 0 heartbeat"), ":60");
    assert_eq!(it.call("config.set 0 heartbeat 100"), "nil");
    assert_eq!(
        it.messages,
        [r#"ql:log {"option":"heartbeat","event":"config_set","value":"100"}"#]
    );
    assert_eq!(it.call("config.get 0 heartbeat"), "100");
    assert_eq!(it.call("config.get 0 nothing"), "nil");
}

#[test]
fn a_job_is_put_shown_counted_popped_and_tracked() {
    let mut it = database();
    assert_eq!(it.call(r#"put 12345.678 w q j1 k {"a":1} 0"#), "j1");
    assert_eq!(
        it.messages,
        [r#"ql:log {"jid":"j1","event":"put","queue":"q"}"#]
    );
    assert_eq!(
        it.json("get 0 j1"),
        read(
            r#"{"jid":"j1","retries":5,"data":"{\"a\":1}","failure":{},"expires":0,"remaining":5,
            "spawned_from_jid":false,"dependencies":{},"klass":"k","tracked":false,"tags":{},
            "queue":"q","state":"waiting","history":[{"when":12345,"q":"q","what":"put"}],
            "dependents":{},"priority":0,"worker":""}"#
        )
    );
    assert_eq!(
        it.json("queues 0"),
        read(
            r#"[{"paused":false,"running":0,"name":"q","waiting":1,"recurring":0,"depends":0,
            "stalled":0,"scheduled":0}]"#
        )
    );
    assert_eq!(it.call("get 0 j2"), "nil");
    assert_eq!(it.call("multiget 0 j2"), "{}");
    assert_eq!(it.call("pop 0 other w 5"), "{}");
    assert_eq!(it.call("jobs 0 running q"), "");
    assert_eq!(it.call("track 1 track j1"), "1");
    assert_eq!(it.messages, ["ql:track j1"]);
}

#[test]
fn a_lock_that_runs_out_warns_then_hands_out_again_then_fails() {
    let mut it = database();
    it.call("put 1.5 w q j k {} 0 retries 1");
    it.call("track 1.5 track j");
    let popped = it.json("pop 2.5 q w 1");
    assert_eq!(popped[0]["expires"], json!(62.5));
    assert_eq!(popped[0]["remaining"], json!(1));
    assert_eq!(it.messages, ["ql:popped j"]);
    assert_eq!(it.call("jobs 62.5 stalled q"), "j");
    assert_eq!(it.call("jobs 62.5 running q"), "j");
    let queue = it.json("queues 62.5 q");
    assert_eq!(
        (&queue["stalled"], &queue["running"]),
        (&json!(1), &json!(0))
    );

    assert_eq!(it.call("pop 62.5 q w2 5"), "{}");
    assert_eq!(
        it.messages,
        [
            "ql:stalled j",
            r#"ql:w:w {"jid":"j","event":"lock_lost","worker":"w"}"#,
            r#"ql:log {"jid":"j","event":"lock_lost","worker":"w"}"#,
        ]
    );
    let job = it.json("get 63 j");
    assert_eq!(job["state"], "running");
    assert_eq!(job["worker"], "w");
    assert_eq!(job["expires"], json!(62.5));
    assert_eq!(it.history("j"), ["put", "popped", "timed-out"]);
    let queue = it.json("queues 63 q");
    assert_eq!(
        (&queue["stalled"], &queue["running"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(it.json("workers 63 w"), json!({"stalled": {}, "jobs": {}}));

    let popped = it.json("pop 73 q w2 5");
    assert_eq!(popped[0]["worker"], "w2");
    assert_eq!(popped[0]["remaining"], json!(0));
    assert_eq!(popped[0]["expires"], json!(133));
    assert_eq!(it.messages, ["ql:popped j"]);

    assert_eq!(it.call("pop 140 q w2 5"), "{}");
    assert_eq!(
        it.messages,
        [
            "ql:stalled j",
            r#"ql:w:w2 {"jid":"j","event":"lock_lost","worker":"w2"}"#,
            r#"ql:log {"jid":"j","event":"lock_lost","worker":"w2"}"#,
        ]
    );
    assert_eq!(it.call("pop 160 q w2 5"), "{}");
    assert_eq!(
        it.messages,
        [
            "ql:failed j",
            concat!(
                r#"ql:log {"message":"Job exhausted retries in queue \"q\"","jid":"j","#,
                r#""group":"failed-retries-q","event":"failed","worker":"w2"}"#
            ),
        ]
    );
    assert_eq!(it.json("failed 161"), json!({"failed-retries-q": 1}));
    let stats = it.json("stats 161 q 161");
    assert_eq!(stats["retries"], json!(2));
    assert_eq!(stats["failures"], json!(1));
    assert_eq!(stats["failed"], json!(1));
    assert_eq!(stats["wait"]["count"], json!(2));
    assert_eq!(stats["wait"]["mean"], read("35.75"));
    assert_eq!(stats["wait"]["std"], read("49.143921292465"));
}

#[test]
fn a_recurring_job_makes_up_for_its_backlog_on_rounded_times() {
    let mut it = database();
    it.call("recur 0.5 q r k {} interval 60.5 10.25 backlog 2");
    assert_eq!(next_run(&mut it), QlessReply::Score(10.75));
    let popped = it.json("pop 300.75 q w 1");
    assert_eq!(popped[0]["jid"], "r-1");
    assert_eq!(
        popped[0]["history"][0],
        json!({"what": "put", "q": "q", "when": 191})
    );
    assert_eq!(next_run(&mut it), QlessReply::Score(252.0));
    assert_eq!(it.jids("pop 300.75 q w 10"), ["r-2"]);
    assert_eq!(
        it.json("get 0 r-2")["history"][0],
        json!({"what": "put", "q": "q", "when": 252})
    );
    assert_eq!(next_run(&mut it), QlessReply::Score(312.5));
}

fn next_run(it: &mut Database) -> QlessReply {
    let request = QlessRequest::NextRun {
        queue: "q".into(),
        jid: "r".into(),
    };
    let answer = it.qless.call(it.at, request, &mut Vec::new());
    answer.expect("nothing to refuse")
}

#[test]
fn the_higher_priority_comes_first_and_a_new_one_moves_to_the_front() {
    let mut it = database();
    it.call("put 0 w q a k {} 0 priority 0");
    it.call("put 0 w q b k {} 0 priority 1");
    assert_eq!(it.jids("peek 0 q 10"), ["b", "a"]);
    assert_eq!(it.call("priority 0 a 2"), ":2");
    assert_eq!(it.jids("peek 0 q 10"), ["a", "b"]);
}

#[test]
fn a_job_waits_for_others_and_goes_only_together_with_them() {
    for both in ["cancel 0 a b", "cancel 0 b a"] {
        let mut it = database();
        it.call("put 0 w q a k {} 0");
        it.call(r#"put 0 w q b k {} 0 depends ["a"]"#);
        assert_eq!(it.of_job("b", "state"), r#""depends""#);
        assert_eq!(
            it.refused("cancel 0 a"),
            "Cancel(): a is a dependency of b but is not mentioned to be canceled"
        );
        it.call(both);
        assert_eq!(it.call("multiget 0 a b"), "{}");
    }
}

#[test]
fn a_job_is_ready_once_what_it_waits_for_is_complete() {
    let mut it = database();
    it.call("put 0 w q a k {} 0");
    it.call(r#"put 0 w q b k {} 0 depends ["a"]"#);
    it.call("pop 0 q w 1");
    assert_eq!(it.call("complete 0 a w q {}"), "complete");
    assert_eq!(it.of_job("b", "state"), r#""waiting""#);
    it.call(r#"put 0 w q c k {} 0 depends ["nowhere"]"#);
    assert_eq!(it.of_job("c", "state"), r#""waiting""#);
}
