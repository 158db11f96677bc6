//! How commands change jobs: orders and ties, times, locks, dependencies, retention, and the messages about them.

use crate::harness::Database;
use ganger_types::qless::Generation;
use serde_json::json;

fn database() -> Database {
    Database::new(Generation::Two)
}

#[test]
fn ready_jobs_go_by_priority_then_by_time_of_entering_then_by_the_last_jid() {
    let mut it = database();
    for line in [
        "put 5 w q late k {} 0",
        "put 3 w q early k {} 0",
        "put 4 w q a k {} 0",
        "put 4 w q b k {} 0",
        "put 9 w q high k {} 0 priority 0.5",
        "put 1 w q low k {} 0 priority -1",
    ] {
        it.call(line);
    }
    let order = ["high", "early", "b", "a", "late", "low"];
    assert_eq!(it.jids("peek 10 q 10"), order);
    assert_eq!(it.jids("pop 10 q w 10"), order);
}

#[test]
fn other_sets_go_by_time_then_by_the_first_jid() {
    let mut it = database();
    for line in [
        "put 1 w q x k {} 0",
        "put 1 w q b k {} 50",
        "put 1 w q a k {} 50",
        "put 1 w q c k {} 20",
        r#"put 3 w q e k {} 0 depends ["x"]"#,
        r#"put 2 w q f k {} 0 depends ["x"]"#,
        r#"put 2 w q d k {} 0 depends ["x"]"#,
    ] {
        it.call(line);
    }
    assert_eq!(it.call("jobs 1 scheduled q"), "c a b");
    assert_eq!(it.call("jobs 1 depends q"), "d f e");
}

#[test]
fn a_scheduled_job_is_ready_from_its_time_on_and_enters_as_of_now() {
    let mut it = database();
    it.call("put 1 w q a k {} 10");
    it.call("put 12 w q b k {} 0");
    assert_eq!(it.jids("peek 10.5 q 5"), ["b"]);
    assert_eq!(it.jids("peek 13 q 5"), ["b", "a"]);
    assert_eq!(it.of_job("a", "state"), r#""waiting""#);
    assert_eq!(it.history("a"), ["put"]);
}

#[test]
fn a_clock_that_goes_back_moves_only_what_the_call_sets() {
    let mut it = database();
    it.call("put 100 w q a k {} 10");
    it.call("pop 200 q w 1");
    assert_eq!(it.of_job("a", "expires"), "260");
    assert_eq!(it.call("heartbeat 50 a w"), ":110");
    assert_eq!(it.jids("pop 109 q v 1"), [""; 0]);
    assert!(it.messages.is_empty());
    assert_eq!(it.json("stats 200 q 200")["wait"]["mean"], json!(100));
}

#[test]
fn putting_a_job_elsewhere_takes_it_from_its_holder() {
    let mut it = database();
    it.call("put 1 w q j k {} 0");
    it.call("track 1 track j");
    it.call("pop 1 q w 1");
    it.call("put 2 v p j k {} 0");
    assert_eq!(
        it.messages,
        [
            r#"ql:log {"jid":"j","event":"put","queue":"p"}"#,
            r#"ql:w:w {"jid":"j","event":"lock_lost","worker":"w"}"#,
            r#"ql:log {"jid":"j","event":"lock_lost","worker":"w"}"#,
            "ql:put j",
        ]
    );
    it.call("pop 3 p w 1");
    it.call("requeue 4 w q j k {} 0");
    assert_eq!(
        it.messages,
        [
            r#"ql:log {"jid":"j","event":"put","queue":"q"}"#,
            "ql:put j",
        ]
    );
    assert_eq!(it.json("workers 4 w")["jobs"], json!({}));
    assert_eq!(it.call("length 4 p"), ":0");
    assert_eq!(it.call("length 4 q"), ":1");
}

#[test]
fn another_put_keeps_absent_options() {
    let mut it = database();
    it.call(r#"put 1 w q j k {} 0 priority 2 retries 9 tags ["t"]"#);
    it.call("put 2 w q j l [] -5");
    let job = it.json("get 2 j");
    assert_eq!(job["klass"], "l");
    assert_eq!(job["data"], "[]");
    assert_eq!(job["priority"], json!(2));
    assert_eq!(job["retries"], json!(9));
    assert_eq!(job["remaining"], json!(9));
    assert_eq!(job["tags"], json!(["t"]));
    assert_eq!(job["state"], "waiting");
    it.call("put 3 w q j l [] 0 priority 1 priority 7 colour red");
    assert_eq!(it.of_job("j", "priority"), "7");
}

#[test]
fn new_dependencies_replace_the_old_ones_and_none_leave_them() {
    let mut it = database();
    for jid in ["a", "b"] {
        it.call(&format!("put 1 w q {jid} k {{}} 0"));
    }
    it.call(r#"put 1 w q j k {} 0 depends ["a"]"#);
    it.call(r#"put 2 w q j k {} 0 depends ["b"]"#);
    assert_eq!(it.of_job("j", "dependencies"), r#"["b"]"#);
    assert_eq!(it.of_job("a", "dependents"), "{}");
    it.call("put 3 w q j k {} 0 depends []");
    assert_eq!(it.of_job("j", "dependencies"), r#"["b"]"#);
    assert_eq!(it.of_job("j", "state"), r#""depends""#);
    it.call("depends 4 j on a nobody");
    assert_eq!(it.of_job("j", "dependencies"), r#"["a","b"]"#);
}

#[test]
fn a_job_that_waits_for_itself_never_runs() {
    let mut it = database();
    it.call(r#"put 1 w q j k {} 0 depends ["j"]"#);
    assert_eq!(it.of_job("j", "state"), r#""depends""#);
    assert_eq!(it.call("cancel 1 j"), "j");
    assert_eq!(it.call("get 1 j"), "nil");
}

#[test]
fn completing_into_another_queue_releases_nobody() {
    let mut it = database();
    it.call("put 1 w q a k {} 0");
    it.call(r#"put 1 w q b k {} 5 depends ["a"]"#);
    it.call("track 1 track a");
    it.call("pop 1 q w 1");
    assert_eq!(it.call(r#"complete 2.5 a w q {"x":1} next p"#), "waiting");
    assert_eq!(
        it.messages,
        [
            "ql:completed a",
            r#"ql:log {"jid":"a","to":"p","event":"advanced","queue":"q"}"#,
        ]
    );
    assert_eq!(it.history("a"), ["put", "popped", "done", "put"]);
    assert_eq!(it.of_job("b", "state"), r#""depends""#);
    it.call("pop 3 p w 1");
    assert_eq!(it.call("complete 4 a w p {} next"), "complete");
    assert_eq!(
        it.messages,
        [
            "ql:completed a",
            r#"ql:log {"jid":"a","event":"completed","queue":"p"}"#,
        ]
    );
    assert_eq!(it.of_job("a", "queue"), r#""""#);
    assert_eq!(it.of_job("b", "state"), r#""scheduled""#);
}

#[test]
fn completed_jobs_go_by_age_and_by_number_and_release_what_waited_for_them() {
    let mut it = database();
    it.call("config.set 0 jobs-history-count 2");
    for (now, jid) in [(1, "a"), (2, "c"), (2, "b"), (3, "d")] {
        it.call(&format!(r#"put {now} w q {jid} k {{}} 0 tags ["t"]"#));
        it.call(&format!("pop {now} q w 1"));
        it.call(&format!("complete {now} {jid} w q {{}}"));
    }
    assert_eq!(it.call("jobs 3 complete"), "d c");
    assert_eq!(it.json("tag 3 get t")["total"], json!(2));

    it.call("config.set 0 jobs-history-count 0");
    it.call("put 4 w q e k {} 0");
    it.call(r#"put 4 w q f k {} 0 depends ["e"]"#);
    it.call("pop 4 q w 1");
    assert_eq!(it.call("complete 4 e w q {}"), "complete");
    assert_eq!(it.call("jobs 4 complete"), "");
    assert_eq!(it.call("get 4 e"), "nil");
    assert_eq!(it.jids("peek 4 q 5"), ["f"]);

    it.call("config.unset 0 jobs-history-count");
    it.call("config.set 0 jobs-history 10");
    it.call("pop 5 q w 1");
    it.call("complete 5 f w q {}");
    it.call("put 14 w q g k {} 0");
    it.call("pop 15 q w 1");
    it.call("complete 15 g w q {}");
    assert_eq!(it.call("jobs 15 complete"), "g");
}

#[test]
fn failing_names_group_message_and_holder() {
    let mut it = database();
    it.call("put 1 w q j k {} 0");
    it.call("track 1 track j");
    it.call("pop 1 q w 1");
    assert_eq!(it.call("fail 2.75 j w g m/n"), "j");
    assert_eq!(
        it.messages,
        [
            r#"ql:log {"message":"m\/n","jid":"j","group":"g","event":"failed","worker":"w"}"#,
            "ql:failed j",
        ]
    );
    let job = it.json("get 3 j");
    assert_eq!(
        job["failure"],
        json!({"group": "g", "message": "m/n", "when": 2, "worker": "w"})
    );
    assert_eq!((&job["queue"], &job["worker"]), (&json!("q"), &json!("")));
    assert_eq!(
        job["history"][2],
        json!({"what": "failed", "when": 2, "worker": "w", "group": "g"})
    );
    assert_eq!(it.json("failed 3"), json!({"g": 1}));
    it.call("cancel 90000 j");
    assert_eq!(it.json("stats 3 q 3")["failed"], json!(0));
    assert_eq!(it.json("stats 3 q 3")["failures"], json!(1));
}

#[test]
fn giving_a_job_back_costs_a_retry_and_fails_without_one() {
    let mut it = database();
    it.call("put 1 w q j k {} 0 retries 1");
    it.call("track 1 track j");
    it.call("pop 1 q w 1");
    assert_eq!(it.call("retry 2 j q w 10"), ":0");
    assert!(it.messages.is_empty());
    assert_eq!(it.of_job("j", "state"), r#""scheduled""#);
    assert_eq!(it.history("j"), ["put", "popped"]);
    it.call("pop 12 q w 1");
    assert_eq!(it.call("retry 13.5 j q w"), ":-1");
    assert_eq!(it.messages, ["ql:failed j"]);
    assert_eq!(
        it.json("get 14 j")["failure"],
        json!({
            "group": "failed-retries-q",
            "message": "Job exhausted retries in queue \"q\"",
            "when": 13.5,
            "worker": "",
        })
    );
    assert_eq!(it.history("j"), ["put", "popped", "popped", "failed"]);
    assert_eq!(it.json("stats 14 q 14")["failed"], json!(1));
}

#[test]
fn without_grace_a_lock_that_ran_out_is_handed_on_in_one_pop() {
    let mut it = database();
    it.call("config.set 0 grace-period 0");
    it.call("config.set 0 q-heartbeat -1");
    it.call("put 1 w q j k {} 0");
    assert_eq!(it.json("pop 2 q w 1")[0]["expires"], json!(1));
    assert_eq!(it.jids("pop 2 q v 1"), ["j"]);
    assert_eq!(
        it.messages,
        [
            r#"ql:w:w {"jid":"j","event":"lock_lost","worker":"w"}"#,
            r#"ql:log {"jid":"j","event":"lock_lost","worker":"w"}"#,
        ]
    );
    assert_eq!(it.of_job("j", "remaining"), "4");
}

#[test]
fn a_job_that_was_lost_comes_before_all_others() {
    let mut it = database();
    it.call("put 1 w q j k {} 0");
    it.call("pop 1 q w 1");
    it.call("pop 61 q w 1");
    it.call("put 62 w q high k {} 0 priority 100");
    it.call("put 62 w q later k {} 10");
    it.call("recur 61 q r k {} interval 60 0 priority 1");
    assert_eq!(it.jids("peek 80 q 2"), ["j", "high"]);
    assert_eq!(it.jids("pop 80 q v 3"), ["j", "high", "r-1"]);
    assert_eq!(it.jids("pop 80 q v 3"), ["later"]);
}

#[test]
fn a_queue_gives_out_only_as_many_as_may_be_held() {
    let mut it = database();
    it.call("config.set 0 q-max-concurrency 2");
    for jid in ["a", "b", "c"] {
        it.call(&format!("put 1 w q {jid} k {{}} 0"));
    }
    assert_eq!(it.jids("pop 1 q w 10").len(), 2);
    assert_eq!(it.jids("pop 2 q w 10"), [""; 0]);
    it.call("complete 3 c w q {}");
    assert_eq!(it.jids("pop 3 q w 10"), ["a"]);
}

#[test]
fn a_paused_queue_gives_nothing_out_and_sees_no_worker() {
    let mut it = database();
    it.call("put 1 w q a k {} 0");
    it.call("pause 1 q");
    assert_eq!(it.call("pop 1 q w 1"), "{}");
    assert_eq!(it.call("workers 1"), "{}");
    assert_eq!(it.jids("peek 1 q 1"), ["a"]);
    it.call("unpause 1 q");
    assert_eq!(it.jids("pop 1 q w 1"), ["a"]);
}

#[test]
fn a_job_that_is_timed_out_comes_first_and_is_still_listed() {
    let mut it = database();
    for jid in ["a", "b", "c"] {
        it.call(&format!("put 1 w q {jid} k {{}} 0"));
    }
    it.call("pop 2 q w 2");
    it.call("put 2 w q d k {} 0 priority 1000");
    assert_eq!(it.call("timeout 3 b c"), "nil");
    assert_eq!(
        it.messages,
        [
            r#"ql:w:w {"jid":"b","event":"lock_lost","worker":"w"}"#,
            r#"ql:log {"jid":"b","event":"lock_lost","worker":"w"}"#,
            r#"ql:w:w {"jid":"c","event":"lock_lost","worker":"w"}"#,
            r#"ql:log {"jid":"c","event":"lock_lost","worker":"w"}"#,
        ]
    );
    let job = it.json("get 3 b");
    assert_eq!(
        (&job["state"], &job["expires"], &job["worker"]),
        (&json!("stalled"), &json!(0), &json!("w"))
    );
    assert_eq!(it.json("workers 3 w")["jobs"], json!(["c", "b"]));
    assert_eq!(it.jids("pop 3 q v 9"), ["c", "b", "d", "a"]);
    assert_eq!(it.of_job("b", "remaining"), "5");
}

#[test]
fn a_new_priority_is_cut_in_the_reply_only() {
    let mut it = database();
    it.call("put 1 w q a k {} 0");
    assert_eq!(it.call("priority 2 a -2.75"), ":-2");
    assert_eq!(it.of_job("a", "priority"), "-2.75");
    it.call("put 1 w q b k {} 10");
    it.call("priority 2 b 5");
    assert_eq!(it.call("jobs 2 scheduled q"), "b");
    assert_eq!(it.jids("peek 11 q 2"), ["b", "a"]);
}

#[test]
fn a_short_interval_and_a_great_count_make_only_so_many_jobs() {
    let mut it = database();
    it.call("recur 0 q r k {} interval 1e-300 0");
    assert_eq!(it.jids("peek 1 q 1e15").len(), 10_000);
}

#[test]
fn runs_that_are_behind_are_made_up_for_as_many_at_a_time_as_are_wanted() {
    let mut it = database();
    it.call("recur 0 q r k {} interval 60 0");
    assert_eq!(it.jids("pop 600 q w 3"), ["r-1", "r-2", "r-3"]);
    assert_eq!(it.jids("pop 600 q w 100").len(), 8);
    it.call("recur 600 q b k {} interval 60 -600 backlog 1");
    assert_eq!(it.jids("pop 600 q w 100"), ["b-1", "b-2"]);
    assert_eq!(it.json("get 0 b-1")["history"][0]["when"], json!(540));
    assert_eq!(it.json("get 0 b-2")["history"][0]["when"], json!(600));
}

#[test]
fn a_child_is_a_job_of_its_own() {
    let mut it = database();
    it.call(r#"recur 10.5 q r k {"a":1} interval 60 0 priority 2 retries 3 tags ["t","t"]"#);
    let job = it.json("peek 10.5 q 1")[0].clone();
    assert_eq!(job["jid"], "r-1");
    assert_eq!(job["spawned_from_jid"], "r");
    assert_eq!(job["priority"], json!(2));
    assert_eq!((&job["retries"], &job["remaining"]), (&json!(3), &json!(3)));
    assert_eq!(it.json("tag 11 get t")["jobs"], json!(["r-1"]));
    it.call("unrecur 11 r");
    assert_eq!(it.jids("pop 11 q w 1"), ["r-1"]);
}

#[test]
fn failed_jobs_are_paged_by_range() {
    let mut it = database();
    for jid in ["a", "b", "c"] {
        it.call(&format!("put 1 w q {jid} k {{}} 0"));
        it.call("pop 1 q w 1");
        it.call(&format!("fail 1 {jid} w g m"));
    }
    assert_eq!(it.json("failed 1 g 0 0")["jobs"], json!(["c", "b", "a"]));
    assert_eq!(it.json("failed 1 g 1 1")["jobs"], json!(["b"]));
    assert_eq!(it.json("failed 1 g -1 1")["jobs"], json!(["a"]));
    assert_eq!(it.json("failed 1 h"), json!({"total": 0, "jobs": {}}));
}
