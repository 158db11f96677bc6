//! Odd behaviour of the script, which is copied unless jobs would break or be lost.

use crate::harness::Database;
use ganger_types::qless::Generation;
use serde_json::json;

fn database() -> Database {
    Database::new(Generation::Two)
}

/// Returns a database in which the job `j` runs and the worker `w` holds it.
fn running() -> Database {
    let mut it = database();
    it.call("put 1 w q j k {} 0");
    it.call("pop 1 q w 1");
    it
}

#[test]
fn completing_into_another_queue_with_a_delay_leaves_the_state_waiting() {
    let mut it = running();
    assert_eq!(it.call("complete 2 j w q {} next p delay 10"), "scheduled");
    assert_eq!(it.of_job("j", "state"), r#""waiting""#);
    assert_eq!(it.call("jobs 2 scheduled p"), "j");
    assert_eq!(it.jids("peek 11.5 p 1"), [""; 0]);
    assert_eq!(it.jids("peek 12 p 1"), ["j"]);
}

#[test]
fn completing_into_another_queue_ignores_the_delay_if_all_it_depends_on_is_met() {
    let mut it = running();
    assert_eq!(
        it.call(r#"complete 2 j w q {} next p delay 10 depends ["nowhere"]"#),
        "waiting"
    );
    assert_eq!(it.jids("peek 2 p 1"), ["j"]);
}

#[test]
fn completing_into_another_queue_with_dependencies_remembers_the_delay() {
    let mut it = running();
    it.call("put 1 w q a k {} 0");
    assert_eq!(
        it.call(r#"complete 2 j w q {} next p delay 10 depends ["a"]"#),
        "depends"
    );
    it.call("pop 3 q w 1");
    it.call("complete 4 a w q {}");
    assert_eq!(it.of_job("j", "state"), r#""scheduled""#);
    assert_eq!(it.jids("peek 12 p 1"), ["j"]);
}

#[test]
fn a_tag_given_twice_stays_twice_and_counts_twice() {
    let mut it = database();
    it.call(r#"put 1 w q j k {} 0 tags ["t","t",1]"#);
    assert_eq!(it.json("get 1 j")["tags"], json!(["t", "t", 1]));
    assert_eq!(it.json("tag 1 top"), json!(["t"]));
    assert_eq!(it.json("tag 1 get t"), json!({"total": 1, "jobs": ["j"]}));
    assert_eq!(it.json("tag 1 get 1"), json!({"total": 1, "jobs": ["j"]}));
    it.call("put 2 w q j k {} 0 tags {}");
    assert_eq!(it.call("tag 2 top"), "{}");
    assert_eq!(it.json("tag 2 get t"), json!({"total": 0, "jobs": {}}));
}

#[test]
fn putting_a_failed_job_takes_one_from_the_failed_ones_of_the_new_queue() {
    let mut it = running();
    it.call("fail 2 j w g m");
    it.call("put 90000 w p j k {} 0");
    assert_eq!(it.json("stats 2 q 2")["failed"], json!(1));
    assert_eq!(it.json("stats 2 p 2")["failed"], json!(-1));
    assert_eq!(it.json("stats 2 p 90000")["failed"], json!(0));
    assert_eq!(it.call("failed 3"), "{}");
    assert_eq!(it.json("get 3 j")["failure"]["group"], "g");
}

#[test]
fn unfailing_takes_the_oldest_and_leaves_the_count_and_the_known_queues() {
    let mut it = database();
    for jid in ["a", "b", "c"] {
        it.call(&format!("put 1 w q {jid} k {{}} 0 retries 3"));
        it.call("pop 1 q w 1");
        it.call(&format!("fail 2 {jid} w g m"));
    }
    assert_eq!(
        it.json("failed 3 g"),
        json!({"total": 3, "jobs": ["c", "b", "a"]})
    );
    assert_eq!(it.call("unfail 3 p g 0"), ":0");
    assert_eq!(it.call("unfail 3 p g -1"), ":0");
    assert_eq!(it.call("unfail 3 p g 2"), ":2");
    assert!(it.messages.is_empty());
    assert_eq!(it.json("failed 3 g"), json!({"total": 1, "jobs": ["c"]}));
    assert_eq!(it.jids("peek 3 p 5"), ["b", "a"]);
    assert_eq!(it.json("stats 3 q 3")["failed"], json!(3));
    assert_eq!(it.json("queues 3").as_array().map(Vec::len), Some(1));
    assert_eq!(it.of_job("a", "remaining"), "3");
}

#[test]
fn the_warning_is_remembered_until_the_job_is_taken_away_or_given_back() {
    let mut it = running();
    assert_eq!(it.jids("pop 61 q v 1"), [""; 0]);
    assert_eq!(it.call("heartbeat 62 j w"), ":122");
    // Without a second warning, the job is taken away at once.
    assert_eq!(it.jids("pop 122 q v 1"), ["j"]);
    assert_eq!(it.jids("pop 182 q w 1"), [""; 0]);
    it.call("complete 183 j v q {} next q");
    it.call("pop 184 q w 1");
    assert_eq!(it.jids("pop 244 q v 1"), ["j"]);
    assert_eq!(it.jids("pop 304 q w 1"), [""; 0]);
    it.call("retry 305 j q v");
    it.call("pop 306 q w 1");
    assert_eq!(it.jids("pop 366 q v 1"), [""; 0]);
}

#[test]
fn a_remembered_time_outlives_a_later_put_without_a_delay() {
    let mut it = running();
    it.call(r#"put 2 w q b k {} 100 depends ["j"]"#);
    it.call("put 3 w q b k {} 0");
    assert_eq!(it.of_job("b", "state"), r#""depends""#);
    it.call("complete 4 j w q {}");
    assert_eq!(it.of_job("b", "state"), r#""scheduled""#);
    assert_eq!(it.jids("peek 102 q 1"), ["b"]);
}

#[test]
fn a_remembered_time_is_not_heeded_when_dependencies_are_dropped() {
    let mut it = running();
    it.call(r#"put 2 w q b k {} 100 depends ["j"]"#);
    assert_eq!(it.call("depends 3 b off nobody"), ":1");
    assert_eq!(it.of_job("b", "state"), r#""depends""#);
    assert_eq!(it.call("depends 3 b off all"), ":1");
    assert_eq!(it.of_job("b", "state"), r#""waiting""#);
    assert_eq!(it.of_job("j", "dependents"), "{}");
}

#[test]
fn cancelling_ends_no_tracking_and_spares_what_is_complete() {
    let mut it = running();
    it.call("put 1 w q c k {} 0");
    it.call("track 1 track c");
    it.call("complete 2 j w q {}");
    assert_eq!(it.call("cancel 3 j c x"), "j c x");
    assert_eq!(
        it.messages,
        [
            r#"ql:log {"jid":"c","queue":"q","event":"canceled","worker":""}"#,
            "ql:canceled c",
            r#"ql:log {"jid":"x","queue":false,"event":"canceled","worker":false}"#,
        ]
    );
    assert_eq!(it.of_job("j", "state"), r#""complete""#);
    assert_eq!(it.json("track 3"), json!({"jobs": {}, "expired": ["c"]}));
    assert_eq!(it.call("cancel 3"), "");
}

#[test]
fn giving_a_job_back_to_another_queue_moves_it_there() {
    let mut it = running();
    assert_eq!(it.call("retry 2 j p w 0 g m"), ":4");
    let job = it.json("get 2 j");
    assert_eq!(job["queue"], "p");
    assert_eq!(
        job["failure"],
        json!({"group": "g", "message": "m", "when": 2, "worker": "w"})
    );
    // The script does not remove these.
    assert_eq!((&job["worker"], &job["expires"]), (&json!("w"), &json!(61)));
    assert_eq!(it.jids("peek 2 p 1"), ["j"]);
    assert_eq!(it.json("workers 2 w")["jobs"], json!({}));
}

#[test]
fn a_recurring_job_that_is_made_again_takes_older_children_of_its_names_out_of_line() {
    let mut it = database();
    it.call("recur 0 q r k {} interval 60 0");
    it.call("pop 0 q w 1");
    it.call("unrecur 1 r");
    it.call(r#"recur 100 q r l {"a":1} interval 60 0 retries 2"#);
    assert_eq!(it.jids("peek 100 q 5"), ["r-1"]);
    let job = it.json("get 100 r-1");
    assert_eq!(
        (&job["state"], &job["klass"]),
        (&json!("waiting"), &json!("l"))
    );
    assert_eq!(it.history("r-1"), ["put", "popped", "put"]);
    assert_eq!(it.call("length 100 q"), ":1");
    assert_eq!(it.json("workers 1 w"), json!({"jobs": {}, "stalled": {}}));
}

#[test]
fn a_child_that_takes_the_place_of_a_failed_or_complete_job_is_in_one_place_only() {
    let mut it = database();
    it.call("recur 0 q r k {} interval 60 0");
    it.call("pop 60 q w 2");
    it.call("fail 61 r-1 w g m");
    it.call("complete 61 r-2 w q {}");
    it.call("unrecur 62 r");
    it.call("recur 100 q r k {} interval 60 0");
    assert_eq!(it.jids("pop 160 q w 2"), ["r-1", "r-2"]);
    assert_eq!(it.call("failed 160"), "{}");
    assert_eq!(it.call("jobs 160 complete"), "");
}

#[test]
fn data_is_kept_as_it_was_sent() {
    let mut it = running();
    it.call("heartbeat 2 j w []");
    assert_eq!(it.of_job("j", "data"), r#""[]""#);
    it.call(r#"heartbeat 2 j w {"b":1.23456789012345678,"a":"\u00e9"}"#);
    assert_eq!(
        it.json("get 2 j")["data"],
        r#"{"b":1.23456789012345678,"a":"\u00e9"}"#
    );
    it.call("fail 3 j w g m [[],{}]");
    assert_eq!(it.of_job("j", "data"), r#""[[],{}]""#);
}

#[test]
fn a_count_below_one_hands_out_nothing() {
    let mut it = database();
    it.call("put 1 w q a k {} 5");
    it.call("recur 1 q r k {} interval 60 0");
    for line in [
        "pop 100 q w 0",
        "pop 100 q w -1",
        "peek 100 q 0",
        "peek 100 q -5",
    ] {
        assert_eq!(it.call(line), "{}");
    }
    assert_eq!(it.call("jobs 1 scheduled q"), "a");
}

#[test]
fn a_history_is_cut_to_its_limit_and_keeps_its_oldest_entry() {
    for (limit, left) in [
        (1, vec![0, 9]),
        (2, vec![0, 9]),
        (3, vec![0, 8, 9]),
        (5, vec![0, 6, 7, 8, 9]),
        (0, (0..10).collect()),
        (-1, (0..10).collect()),
    ] {
        let mut it = database();
        it.call(&format!("config.set 0 max-job-history {limit}"));
        for now in 0..10 {
            it.call(&format!("put {now}.5 w q j k {{}} 0"));
        }
        let job = it.json("get 0 j");
        let whens = job["history"].as_array().expect("a list").iter();
        let whens: Vec<i64> = whens.filter_map(|it| it["when"].as_i64()).collect();
        assert_eq!(whens, left, "with {limit}");
    }
}

#[test]
fn a_worker_that_is_deregistered_keeps_its_jobs() {
    let mut it = running();
    it.call("worker.deregister 2 w");
    assert_eq!(it.call("workers 2"), "{}");
    assert_eq!(it.json("workers 2 w")["jobs"], json!(["j"]));
}

#[test]
fn the_first_generation_puts_without_a_worker_and_has_no_requeue() {
    let mut it = Database::new(Generation::One);
    it.call("put 1 q j k {} 0 priority 0 tags [] retries 5 depends []");
    it.call("pop 1 q w 1");
    it.call("put 2 q j k {} 0");
    assert_eq!(
        it.messages,
        [
            r#"ql:log {"jid":"j","event":"put","queue":"q"}"#,
            r#"ql:w:w {"jid":"j","event":"lock_lost","worker":"w"}"#,
            r#"ql:log {"jid":"j","event":"lock_lost","worker":"w"}"#,
        ]
    );
    assert_eq!(
        it.refused("requeue 2 w q j k {} 0"),
        "Unknown command requeue"
    );
}
